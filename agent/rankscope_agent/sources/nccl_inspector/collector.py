"""Durations and bandwidth of collectives, measured by NCCL Inspector in training processes.

Inspector is a profiler plugin of NCCL 2.28 and newer that users switch on. Its JSON files contain
each operation of each process; its Prometheus files (2.30 and newer) contain means per GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from rankscope_agent.contract.metrics import nccl_inspector as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.nccl_inspector.follower import InspectorFollower
from rankscope_agent.sources.pods.directory import PodDirectory

CPU_SHARE = 0.02
"""Share of a core that reading may use: a job with 300 collectives per step and eight ranks writes
some 2,400 records a second, which take about that much."""

RESCAN_SECONDS = 5.0
"""Time between two scans for files; Inspector writes its Prometheus files every 30 s at most."""


def create(config: Config, pods: PodDirectory) -> NcclInspectorCollector:
    """Create the collector of Inspector's files."""
    budget = CPU_SHARE * config.interval_seconds
    follower = InspectorFollower(
        config.kubelet,
        config.inspector_dirs,
        time.thread_time,
        budget,
        pods.gpus_of,
        pods.namespace_of_pod,
    )
    return NcclInspectorCollector(follower, time.time)


class NcclInspectorCollector:
    """Follows Inspector's files and exports their contents.

    Args:
        follower: reads them.
        clock: returns the Unix time in seconds.
    """

    def __init__(self, follower: InspectorFollower, clock: Callable[[], float]) -> None:
        self._follower = follower
        self._clock = clock
        self._scanned = float("-inf")
        self._there = False

    def collect(self) -> Iterator[Sample]:
        """Yield what Inspector has written so far.

        Raises:
            NoData: no directory of Inspector exists.
        """
        now = self._clock()
        if not 0 <= now - self._scanned < RESCAN_SECONDS:
            self._there = self._follower.rescan(now)
            self._scanned = now
        if not self._there:
            raise NoData(
                "no directory of NCCL Inspector; set NCCL_INSPECTOR_DUMP_DIR in the job and say"
                " where that is with --nccl.inspector-dirs"
            )
        self._follower.read(now)
        yield from self._own_samples()
        yield from self._samples()

    def _own_samples(self) -> Iterator[Sample]:
        follower = self._follower
        yield metrics.INSPECTOR_FILES.sample(follower.files)
        yield metrics.INSPECTOR_LEFT_OFF.sample(follower.left_off)
        yield metrics.INSPECTOR_REFUSED.sample(follower.refused)
        yield metrics.INSPECTOR_DROPPED.sample(follower.dropped)
        yield metrics.INSPECTOR_SKIPPED.sample(follower.skipped_bytes)
        yield metrics.INSPECTOR_UNPARSED.sample(follower.unparsed)

    def _samples(self) -> Iterator[Sample]:
        for owner, operation, source, totals in self._follower.totals():
            labels = (owner.pod_uid, str(owner.rank), operation, source)
            yield Sample(metrics.INSPECTOR_OPERATIONS, labels, totals.operations)
            yield Sample(metrics.INSPECTOR_SECONDS, labels, totals.seconds)
            yield Sample(metrics.INSPECTOR_BYTES, labels, totals.size)
        for uuid, speed in self._follower.speeds():
            gpu_labels = (uuid, speed.operation, speed.scope)
            if speed.seconds is not None:
                yield Sample(metrics.INSPECTOR_GPU_SECONDS, gpu_labels, speed.seconds)
            if speed.bytes_per_second is not None:
                bandwidth = speed.bytes_per_second
                yield Sample(metrics.INSPECTOR_GPU_BANDWIDTH, gpu_labels, bandwidth)
