"""What the kernel reports: Xids, lost GPUs, PCIe, adapters, memory, disks, hung tasks, reboots.

The log is read from /dev/kmsg if permitted, else by syslog(2), else from journald's files. After a
restart reading continues where it ended in this boot, so nothing is counted twice or missed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.kernel.log import read
from rankscope_agent.contract.metrics import kernel_log as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.kernel_files import read_text
from rankscope_agent.sources.kernel_log import reboots
from rankscope_agent.sources.kernel_log.gpus import GpuName, gpu_names, remembered
from rankscope_agent.sources.kernel_log.log_sources import Source, openers
from rankscope_agent.sources.kernel_log.processes import FRESH_SECONDS, pod_of_process
from rankscope_agent.sources.kernel_log.record_clock import RecordClock
from rankscope_agent.sources.kernel_log.series import samples
from rankscope_agent.sources.kernel_log.tally import POD_EVENTS, Tally, from_json
from rankscope_agent.sources.pid_namespace import shows_node_processes
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.sealed_state import MALFORMED, sealed, unsealed_or_older

log = logging.getLogger(__name__)

LOOK_SECONDS: Mapping[str, float] = {"kmsg": 1.0, "syslog": 5.0, "journal": 5.0}
"""Time between two readings of a source: for kmsg a reading takes one call, for the others more."""

GPU_SECONDS = 60.0
"""Time between two readings of the driver's list of GPUs."""

SAVE_SECONDS = 10.0
"""Time between two writes of the state, which holds the last known moments of a boot."""

MAX_STATE_BYTES = 4 << 20
STATE_FILE = "kernel_log.json"


@dataclass(frozen=True, slots=True)
class Node:
    """What else the collector reads on the node; paths and clocks.

    Args:
        procfs: the node's procfs.
        pstore: where the kernel stores the log of a crash.
        wtmp: where systemd records shutdowns.
        state_file: where reading continues after a restart.
        clock: returns Unix time in seconds.
        uptime: returns seconds since boot, by the clock of the kernel's records.
        keeps_state: whether the state file is written, or only read.
        pod_of: returns the UID of the pod of a process; empty if unknown.
    """

    procfs: Path
    pstore: Path
    wtmp: Path
    state_file: Path
    clock: Callable[[], float]
    uptime: Callable[[], float]
    keeps_state: bool = True
    pod_of: Callable[[int | None], str] = lambda _: ""

    def boot(self) -> str:
        """Return the running kernel's boot id; empty if it cannot be read."""
        return read_text(self.procfs / "sys" / "kernel" / "random" / "boot_id")


def create(config: Config, directory: PodDirectory) -> KernelLogCollector:
    """Create the collector of the kernel's log."""
    pod_of = partial(
        pod_of_process,
        config.procfs,
        seen=directory.pod_of_rank_process,
        whole_node=shows_node_processes(config.procfs),
    )
    node = Node(
        config.procfs,
        config.sysfs / "fs" / "pstore",
        config.system_logs / "wtmp",
        config.state_dir / STATE_FILE,
        time.time,
        lambda: time.clock_gettime(time.CLOCK_MONOTONIC),
        keeps_state=not config.once,
        pod_of=pod_of,
    )
    return KernelLogCollector(openers(config.kmsg, config.system_logs, node.boot), node)


class KernelLogCollector:
    """Follows the kernel's log and counts its events.

    Args:
        openers: functions that open a source of the log, the best one first; each raises OSError if
            it cannot.
        node: the other data of the node.
    """

    def __init__(self, openers: Sequence[Callable[[], Source]], node: Node) -> None:
        self._openers = openers
        self._node = node
        self._boot = node.boot()
        self._source: Source | None = None
        self._cursors: dict[str, dict[str, int]] = {}
        self._clock = RecordClock()
        self._seconds = -1.0  # of the last record read in this boot, from any source
        self._tally = Tally()
        self._gpus: Mapping[str, GpuName] = {}
        self._looked = self._asked = self._saved = float("-inf")
        self._complained = False
        self._restore()

    def collect(self) -> Iterator[Sample]:
        """Yield the counts so far.

        Raises:
            NoData: the agent has access to no source of the log.
        """
        now = self._node.clock()
        source = self._source or self._open()
        if not 0 <= now - self._looked < LOOK_SECONDS.get(source.name, 1.0):
            self._look(source, now)
            self._looked = now
        if not 0 <= now - self._asked < GPU_SECONDS:
            self._gpus = remembered(self._gpus, gpu_names(self._node.procfs))
            self._asked = now
        if self._node.keeps_state and not 0 <= now - self._saved < SAVE_SECONDS:
            self._save(now)
            self._saved = now
        yield metrics.KERNEL_LOG_INFO.sample(1, source=source.name)
        yield from samples(self._tally, self._gpus)

    def _open(self) -> Source:
        refusals: list[str] = []
        for opener in self._openers:
            self._source = _opened(opener, refusals)
            if self._source is not None:
                return self._source
        raise NoData(
            "no kernel log: the agent has no access to /dev/kmsg, syslog(2) or the journal"
            f" ({'; '.join(refusals)})"
        )

    def _look(self, source: Source, now: float) -> None:
        # A source that was not read before offers again what another one has already provided.
        known = -1.0 if source.name in self._cursors else self._seconds
        started = self._node.uptime()
        try:
            batch = source.read(self._cursors.get(source.name, {}))
        except OSError:
            source.close()
            self._source = None
            self._clock = RecordClock()
            raise
        uptime = self._node.uptime()
        self._clock.begin(uptime)
        for record in batch.records:
            event = read(record.text) if record.text and record.seconds > known else None
            self._seconds = max(self._seconds, record.seconds)
            written = self._clock.uptime(record.seconds)
            if event is not None:
                fresh = uptime - written < FRESH_SECONDS and event.kind in POD_EVENTS
                pod = self._node.pod_of(event.pid) if fresh else ""
                self._tally.add(event, now - uptime + written, pod)
        self._clock.end(started, complete=batch.complete)
        self._tally.lost += batch.lost
        self._cursors[source.name] = batch.cursor

    def _restore(self) -> None:
        try:
            with self._node.state_file.open("rb") as kept:
                text = unsealed_or_older(kept.read(MAX_STATE_BYTES))
            self._take(untrusted_json.read(text))
        except FileNotFoundError:
            return
        except (OSError, *MALFORMED) as error:
            log.warning("cannot continue from %s (%s)", self._node.state_file, error)
            self._tally, self._cursors, self._seconds, self._gpus = Tally(), {}, -1.0, {}

    def _take(self, state: dict[str, Any]) -> None:
        self._tally = from_json(state["tally"])
        alive = float(state["alive_unix_seconds"])
        if not self._boot or state["boot"] == self._boot:
            cursors = state["cursors"]
            self._cursors = {
                str(name): {str(key): int(at) for key, at in cursor.items()}
                for name, cursor in cursors.items()
            }
            self._seconds = float(state["seconds"])
            self._gpus = {
                str(pci): GpuName(str(gpu), str(uuid)) for pci, (gpu, uuid) in state["gpus"].items()
            }
            return
        reason = reboots.ended(self._node.pstore, self._node.wtmp, alive)
        self._tally.reboots[reason,] += 1
        self._tally.reboot_times[reason,] = self._node.clock() - self._node.uptime()

    def _save(self, now: float) -> None:
        """Write the state to a temporary file, then rename it."""
        state = {
            "boot": self._boot,
            "alive_unix_seconds": now,
            "cursors": self._cursors,
            "seconds": self._seconds,
            "gpus": {pci: (name.gpu, name.uuid) for pci, name in self._gpus.items()},
            "tally": self._tally.to_json(),
        }
        made = self._node.state_file.with_suffix(".tmp")
        try:
            made.write_bytes(sealed(json.dumps(state, separators=(",", ":")).encode()))
            made.replace(self._node.state_file)
        except OSError as error:
            if not self._complained:
                self._complained = True
                log.warning(
                    "cannot write %s: %s; after a restart the agent counts this boot's log again",
                    made,
                    error.strerror,
                )


def _opened(opener: Callable[[], Source], refusals: list[str]) -> Source | None:
    """Return the source, or None and add a refusal."""
    try:
        return opener()
    except OSError as error:
        refusals.append(str(error.strerror or error))
        return None
