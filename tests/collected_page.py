"""What one run of the training collector gave, and the collector under a clock of its own."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from rankscope_agent.contract.model import HistogramValue, Metric, Sample
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.training import background_follower
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.read_turns import ReadTurns
from ring_writer import HEADER_FIELDS, NS

CREATED_NS = HEADER_FIELDS["created_unix_ns"]
CREATED = CREATED_NS / NS

SCAN_SECONDS = 20.0
"""Patience with scans: where much else runs, one may take longer than the second of an agent, and
its rings would be seen a run later."""


class Clock:
    def __init__(self) -> None:
        self.now = CREATED + 10

    def __call__(self) -> float:
        return self.now


class Page:
    """What one run of the collector gave, by metric and labels."""

    def __init__(self, collector: TrainingCollector) -> None:
        with patch.object(background_follower, "PATIENCE_SECONDS", SCAN_SECONDS):
            self.samples: list[Sample] = list(collector.collect())
        self.series = {(s.metric, s.labels): s.value for s in self.samples}
        assert len(self.series) == len(self.samples), "a series came twice"

    def value(self, metric: Metric, *labels: str) -> float | HistogramValue | None:
        return self.series.get((metric, labels))

    def rank(self, metric: Metric, rank: int = 0, job: str = "team/job") -> object:
        return self.value(metric, job, str(rank))

    def labels(self, metric: Metric) -> list[tuple[str, ...]]:
        return [labels for found, labels in self.series if found is metric]


def collector(
    tmp_path: Path,
    clock: Clock | None = None,
    turns: ReadTurns | None = None,
    pods: PodDirectory | None = None,
) -> TrainingCollector:
    """Return a collector whose runs end when all is read, or as `turns` say."""
    kubelet, unhurried = tmp_path / "kubelet", ReadTurns(lambda: 0.0, lambda: 0.0)
    return TrainingCollector(
        tmp_path, kubelet, "gpu-01", clock or Clock(), pods, turns or unhurried
    )
