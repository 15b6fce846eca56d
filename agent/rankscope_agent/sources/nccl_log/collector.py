"""What NCCL, PyTorch's watchdog, frameworks and failing ranks log, in pods' logs and other files.

After a restart of the agent, reading continues where it ended, with what was known by then.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.metrics import job_starts
from rankscope_agent.contract.metrics import nccl_log as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.nccl_log.init_time import init_seconds
from rankscope_agent.sources.nccl_log.job_failures import JobFailures
from rankscope_agent.sources.nccl_log.pod import PodLogs
from rankscope_agent.sources.nccl_log.segments import REASONS
from rankscope_agent.sources.nccl_log.series import job_samples
from rankscope_agent.sources.nccl_log.state import StateError
from rankscope_agent.sources.nccl_log.step_lines.own import OwnLines
from rankscope_agent.sources.nccl_log.step_series import step_samples
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.sealed_state import MALFORMED, sealed, unsealed_or_older

log = logging.getLogger(__name__)

CPU_SHARE = 0.05
"""Share of a core that reading may use: the most that a flood of lines can cost. A quiet node's
logs take a tenth of a percent; the ten thousand or so lines of a job's start are read within a few
runs."""

RESCAN_SECONDS = 5.0
"""Time between two scans for logs: the kubelet rotates every ten seconds at most."""

SAVE_SECONDS = 30.0
"""Time between two writes of the state, if anything was read: what a killed agent reads again. The
kernel takes milliseconds to replace a file, ten times what following quiet logs takes per
second."""

MAX_STATE_BYTES = 64 << 20
"""Largest state that is read: 64 pods of a megabyte each."""

STATE_FILE = "nccl_logs.json"


def create(config: Config, directory: PodDirectory) -> NcclLogCollector:
    """Create the collector of the node's logs."""
    budget = CPU_SHARE * config.interval_seconds
    own = OwnLines(config.step_pattern)
    follower = NcclFollower(
        config.pod_logs,
        config.nccl_logs,
        time.thread_time,
        budget,
        own=own,
        ended=directory.has_ended,
    )
    state_file = config.state_dir / STATE_FILE
    return NcclLogCollector(follower, config.sysfs, state_file, time.time, directory)


class NcclLogCollector:
    """Follows logs and exports what they prove.

    Args:
        follower: reads the logs.
        sysfs: the node's sysfs, for its RDMA ports.
        state_file: where reading continues after a restart.
        clock: returns the Unix time in seconds.
        directory: the node's pods.
    """

    def __init__(
        self,
        follower: NcclFollower,
        sysfs: Path,
        state_file: Path,
        clock: Callable[[], float],
        directory: PodDirectory,
    ) -> None:
        self._directory = directory
        self._failures = JobFailures(directory)
        self._follower = follower
        self._sysfs = sysfs
        self._state_file = state_file
        self._clock = clock
        self._scanned = self._saved = float("-inf")
        self._saved_bytes = 0
        self._complained = False
        self._there = False
        self._rdma: tuple[frozenset[str], bool] = (frozenset(), False)
        self._restore()

    def collect(self) -> Iterator[Sample]:
        """Yield what the logs have proved so far.

        Raises:
            NoData: the directory of pods' logs does not exist, and no files are configured.
        """
        now = self._clock()
        if not 0 <= now - self._scanned < RESCAN_SECONDS:
            self._there = self._follower.rescan(now)
            self._rdma = rdma_devices(self._sysfs)
            self._scanned = now
        if not self._there:
            raise NoData(
                "no directory of pods' logs; say where logs are with --path.pod-logs or"
                " --nccl.log-files"
            )
        self._failures.look_at_ranks(self._follower.pods(), now)
        self._follower.read(now)
        self._follower.forget_outside_before(self._failures.outside_since)
        self._failures.update(self._follower.pods(), self._follower.departed(), now)
        grew = self._follower.read_bytes != self._saved_bytes
        if grew and not 0 <= now - self._saved < SAVE_SECONDS:
            self._save()
            self._saved, self._saved_bytes = now, self._follower.read_bytes
        yield from self._own_samples()
        devices, active = self._rdma
        started: dict[str, float] = {}
        for job in self._living_first(self._follower.jobs()):
            took, name = init_seconds(job.facts), self._directory.job_of(job.owner.uid)
            if took is not None and name:
                started[name] = max(took, started.get(name, 0.0))
            pod = (job.owner.namespace, job.owner.name)
            verdict = job.verdict(now)
            yield from job_samples(job.owner, job.facts, verdict, devices, rdma_active=active)
            if job.last_line is not None:
                yield Sample(metrics.NCCL_LAST_LINE, pod, job.last_line)
            if job.last_warning is not None:
                yield Sample(metrics.NCCL_LAST_WARNING, pod, job.last_warning)
        for job in self._living_first(self._follower.stepping_jobs(now)):
            yield from step_samples(job.owner, job.steps.facts)
        yield from self._failures.samples()
        for name, seconds in started.items():
            yield job_starts.JOB_STARTUP.sample(seconds, job_id=name, phase="nccl_init")

    def _living_first(self, jobs: Iterator[PodLogs]) -> Sequence[PodLogs]:
        """Return pods in the order on the page, whose limit cuts the last ones."""
        return sorted(jobs, key=lambda job: self._directory.has_ended(job.owner.uid))

    def _own_samples(self) -> Iterator[Sample]:
        yield metrics.NCCL_LOGS.sample(self._follower.logs)
        yield metrics.NCCL_LOG_LAG.sample(self._follower.lag_bytes())
        yield metrics.NCCL_LOG_LAG_LINES.sample(self._follower.lag_lines())
        yield metrics.NCCL_LOG_SKIPPED.sample(self._follower.total_skipped_bytes())
        for reason in REASONS:
            if count := self._follower.rejected[reason]:
                yield metrics.NCCL_LOGS_REJECTED.sample(count, reason=reason)

    def _restore(self) -> None:
        try:
            with self._state_file.open("rb") as source:
                text = unsealed_or_older(source.read(MAX_STATE_BYTES + 1))
            state = untrusted_json.read(text)
            if not isinstance(state, dict):
                raise StateError("is not an object")
            failures = JobFailures(self._directory)
            failures.restore(state.get("failures", ()))
            self._follower.restore(state)
            self._failures = failures
        except FileNotFoundError:
            return
        except (OSError, StateError, *MALFORMED) as error:
            log.warning(
                "cannot continue from %s (%s); reading all logs again", self._state_file, error
            )

    def _save(self) -> None:
        """Write the state to a temporary file, then rename it."""
        state = self._follower.state()
        if state is None:
            return
        state["failures"] = self._failures.state()
        made = self._state_file.with_suffix(".tmp")
        try:
            made.write_bytes(sealed(json.dumps(state, separators=(",", ":")).encode()))
            Path(made).replace(self._state_file)
        except OSError as error:
            if not self._complained:
                self._complained = True
                log.warning(
                    "cannot write %s: %s; after a restart the agent reads all logs again",
                    made,
                    error.strerror,
                )


def rdma_devices(sysfs: Path) -> tuple[frozenset[str], bool]:
    """Return the node's RDMA devices, and whether any of them has an active port."""
    root = sysfs / "class" / "infiniband"
    try:
        devices = frozenset(device.name for device in root.iterdir())
    except OSError:
        return frozenset(), False
    return devices, any(_is_active(path) for path in root.glob("*/ports/*/state"))


def _is_active(state: Path) -> bool:
    try:
        return state.read_text().startswith("4:")  # IB_PORT_ACTIVE of ib_verbs.h
    except OSError:
        return False
