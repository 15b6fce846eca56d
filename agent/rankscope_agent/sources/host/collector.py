"""The node under a training job: pressure, memory, disks, clock, errors, and its training pods.

These counters change slowly compared to a step, so the node is read every few seconds, and pods and
file systems more rarely; in between, the last values are served.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.host import node, pod_samples
from rankscope_agent.sources.host.nfs import parse_mountstats
from rankscope_agent.sources.host.pod_groups import (
    PodGroup,
    PodGroups,
    members_of_jobs,
    training_volumes,
)
from rankscope_agent.sources.kernel_files import read_text
from rankscope_agent.sources.pid_namespace import shows_node_processes
from rankscope_agent.sources.pods.directory import PodDirectory

LOOK_SECONDS = 5.0
"""Time between two readings of the node: a third of the shortest usual scrape interval (15 s)."""

POD_SECONDS = 30.0
"""Time between two scans for pods, their processes and file systems."""

MAX_MOUNTSTATS_BYTES = 4 << 20  # some 1,000 NFS mounts

NODE_PROCESS = 1


def create(config: Config, directory: PodDirectory) -> HostCollector:
    """Create the collector of the node."""
    return HostCollector(
        config.procfs,
        config.sysfs,
        config.kubelet,
        lambda: members_of_jobs(directory),
        time.monotonic,
        whole_node=shows_node_processes(config.procfs),
    )


class HostCollector:
    """Reads the node.

    Args:
        procfs: the node's procfs.
        sysfs: the node's sysfs.
        kubelet: the kubelet's directory.
        members: returns the uids of pods that belong to jobs.
        clock: returns monotonic seconds.
        whole_node: whether process 1 of this procfs is the node's.
    """

    def __init__(
        self,
        procfs: Path,
        sysfs: Path,
        kubelet: Path,
        members: Callable[[], Iterable[str]],
        clock: Callable[[], float],
        *,
        whole_node: bool,
    ) -> None:
        self._procfs = procfs
        self._sysfs = sysfs
        self._kubelet = kubelet
        self._members = members
        self._clock = clock
        self._whole_node = whole_node
        self._groups = PodGroups(sysfs / "fs" / "cgroup")
        self._pods: Sequence[PodGroup] = ()
        self._uids: frozenset[str] = frozenset()
        self._looked = self._sought = float("-inf")
        self._samples: tuple[Sample, ...] = ()
        self._slow_samples: tuple[Sample, ...] = ()

    def collect(self) -> Sequence[Sample]:
        """Return what is known about the node.

        Raises:
            NoData: there is no procfs.
        """
        now = self._clock()
        if now - self._sought >= POD_SECONDS:
            self._seek()
            self._sought = now
        if now - self._looked >= LOOK_SECONDS:
            self._samples = tuple(self._look())
            self._looked = now
        if not self._samples:
            raise NoData(
                f"nothing in {self._procfs}; say where the node's procfs is with --path.procfs"
            )
        return (*self._samples, *self._slow_samples)

    def _look(self) -> Iterator[Sample]:
        yield from node.pressure(self._procfs)
        yield from node.memory(self._procfs)
        yield from node.tasks(self._procfs)
        yield from node.received_packets(self._procfs)
        for group in self._pods:
            yield from pod_samples.group_samples(group)

    def _seek(self) -> None:
        """Find the training pods, and read what is slow to read."""
        self._uids = frozenset((*training_volumes(self._kubelet), *self._members()))
        self._pods = self._groups.find(self._uids)
        self._slow_samples = tuple(self._look_slowly())

    def _look_slowly(self) -> Iterator[Sample]:
        yield from node.boot(self._procfs)
        yield from node.clock()
        yield from node.file_systems(self._kubelet)
        yield from node.memory_errors(self._sysfs)
        yield from node.nvme(self._sysfs)
        if not self._whole_node:
            return
        yield from pod_samples.process_samples(self._procfs, "", NODE_PROCESS)
        for group in self._pods:
            process = group.process()
            if process is not None:
                yield from pod_samples.process_samples(self._procfs, group.uid, process)
        mounts = read_text(self._procfs / str(NODE_PROCESS) / "mountstats", MAX_MOUNTSTATS_BYTES)
        yield from pod_samples.nfs_samples(parse_mountstats(mounts), self._uids)
