"""The parts of a node's evidence about a job, each limited in size and read independently.

They are read in the order in which they would be lost: what RAS reports, the state of ranks, their
processes, the kernel's log, the ends of logs. If reading one part fails, that part says so and the
others are not affected.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from rankscope_agent.contract import stalls
from rankscope_agent.contract.model import STEP_COLUMNS, StepRow
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.evidence.kernel_lines import kernel_lines
from rankscope_agent.sources.evidence.log_tails import LogTails
from rankscope_agent.sources.evidence.process_states import process_state
from rankscope_agent.sources.evidence.ras_report import RasReports
from rankscope_agent.sources.kernel_files import read_text
from rankscope_agent.sources.kernel_log.log_sources import Opener, openers
from rankscope_agent.sources.pods.lock_holders import read_lock_holders
from rankscope_agent.sources.stalls.stall_source import StallSource
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.ring_rows import NS, RingAnswer

Part = Literal["ras", "stalls", "processes", "kernel", "logs"]
PARTS: tuple[Part, ...] = get_args(Part)
"""The available parts, the most volatile first."""

MAX_RANKS = 64
BEFORE_SECONDS = 600.0
"""The kernel's log is included from this long before the job's processes began."""

KEPT_STEPS = 500
STEPS_SECONDS = 3600.0
"""Newest step records kept per rank, from this long before its last step at most."""

KNOWN_SECONDS = 5.0
"""For this long, the parts of one request use the same scan of the rings: which processes created
them and when does not change, and what does change is read from the processes themselves."""

_RANK = STEP_COLUMNS.index("rank")


class NodeEvidence:
    """What a node knows about a stalled job; may be queried by any thread.

    Args:
        rings: the node's rings.
        stalls: reads the state of ranks.
        procfs: the node's procfs.
        ras: NCCL's RAS.
        kernel: sources of the kernel's log.
        logs: reads the ends of logs.
        clock: returns the Unix time in seconds.
    """

    def __init__(
        self,
        rings: RingStepSource,
        stalls: StallSource,
        procfs: Path,
        ras: RasReports,
        kernel: Sequence[Opener],
        logs: LogTails,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._rings = rings
        self._stalls = stalls
        self._procfs = procfs
        self._ras = ras
        self._kernel = kernel
        self._logs = logs
        self._clock = clock
        self._known: tuple[float, Sequence[RingAnswer]] = (-math.inf, ())
        self._looks: Mapping[Part, Callable[[str], Any]] = {
            "ras": lambda _: ras.report(),
            "stalls": self._where_ranks_stand,
            "processes": self._processes,
            "kernel": self._kernel_log,
            "logs": self._tails,
        }

    def part(self, name: Part, job_id: str) -> Mapping[str, Any]:
        """Return one part of the evidence about a job.

        Raises:
            OSError: the node's procfs cannot be read.
        """
        return {"taken_unix_seconds": self._clock(), name: self._looks[name](job_id)}

    def steps(self, job_id: str, until_unix_seconds: float) -> Mapping[str, Any]:
        """Return the newest step records of a job, for each rank on this node.

        Args:
            job_id: the job.
            until_unix_seconds: when its last step ended.
        """
        newest: dict[Any, deque[StepRow]] = defaultdict(lambda: deque(maxlen=KEPT_STEPS))
        for row in self._rings.steps(job_id, until_unix_seconds - STEPS_SECONDS):
            rank = row[_RANK]
            if rank in newest or len(newest) < MAX_RANKS:
                newest[rank].append(row)
        rows = [list(map(_finite, row)) for several in newest.values() for row in several]
        return {"columns": list(STEP_COLUMNS), "rows": rows}

    def _newest(self, job_id: str) -> list[RingAnswer]:
        """Return the newest ring of each rank of a job."""
        rings = (ring for ring in self._all() if ring.identity.job_id == job_id)
        return list({ring.identity.rank: ring for ring in rings}.values())[:MAX_RANKS]

    def _all(self) -> Sequence[RingAnswer]:
        """Return the rings of all jobs, from a recent scan."""
        at, rings = self._known
        if not 0 <= self._clock() - at < KNOWN_SECONDS:
            rings = self._rings.rings_of(None)
            self._known = self._clock(), rings
        return rings

    def _where_ranks_stand(self, job_id: str) -> Any:
        return [stalls.as_object(one) for one in self._stalls.stalls(job_id)]

    def _processes(self, job_id: str) -> list[dict[str, Any]]:
        holders = read_lock_holders(self._procfs)
        found = []
        for ring in self._newest(job_id):
            device, inode = ring.file.inode
            pid = holders.get((os.major(device), os.minor(device), inode))
            found.append({"rank": ring.identity.rank, **process_state(self._procfs, pid)})
        return found

    def _kernel_log(self, job_id: str) -> Mapping[str, Any]:
        began = min((ring.created_unix_ns / NS for ring in self._newest(job_id)), default=0.0)
        return kernel_lines(self._kernel, began - BEFORE_SECONDS if began else 0.0)

    def _tails(self, job_id: str) -> list[dict[str, Any]]:
        self._known = -math.inf, ()  # a job that began just now may have written to these logs
        pods = {ring.directory.pod_uid for ring in self._newest(job_id)}
        others = {
            ring.identity.job_id
            for ring in self._all()
            if not ring.directory.pod_uid and ring.identity.alive
        }
        return self._logs.of(pods - {""}, outside="" in pods and others <= {job_id})


def _finite(value: Any) -> Any:
    """Return a value of a record; None for a number that JSON lacks."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def node_evidence(config: Config, rings: RingStepSource, stalls: StallSource) -> NodeEvidence:
    """Return the evidence reader of a node with these settings."""
    boot = config.procfs / "sys" / "kernel" / "random" / "boot_id"
    return NodeEvidence(
        rings,
        stalls,
        config.procfs,
        RasReports(config.ras_address),
        openers(config.kmsg, config.system_logs, lambda: read_text(boot)),
        LogTails(config.pod_logs, config.nccl_logs),
    )
