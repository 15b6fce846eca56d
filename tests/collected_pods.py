"""A node with pods as their collector sees it, and a kubelet that answers with a message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pod_json import uid
from rankscope_agent.contract.job_labels import DEFAULT_LABELS
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.sources.pods.collector import PodsCollector, Roots
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.records import parse_pod
from rankscope_agent.sources.pods.reflector import Reflector

CID = "ab" * 32


class Kubelet:
    """Answers with a message, or fails."""

    def __init__(self, message: bytes = b"", failure: Exception | None = None) -> None:
        self.message, self.failure = message, failure
        self.calls = 0

    def call(self) -> bytes:
        self.calls += 1
        if self.failure:
            raise self.failure
        return self.message


class Node:
    """A node as the collector sees it."""

    def __init__(self, path: Path, kubelet: Kubelet, *, api: bool = True) -> None:
        self.path = path
        self.now = 1000.0
        self.kubelet = kubelet
        self.directory = PodDirectory()
        (path / "proc").mkdir(exist_ok=True)
        reflector = Reflector(None, self.directory, "n1") if api else None  # type: ignore[arg-type]
        self.collector = PodsCollector(
            directory=self.directory,
            reflector=reflector,
            kubelet=kubelet,
            roots=Roots(path / "proc", path / "sys", path / "rings"),
            node="n1",
            job_labels=DEFAULT_LABELS,
            clock=lambda: self.now,
        )

    def pods(self, *data) -> None:
        self.directory.replace([parse_pod(item) for item in data], self.now)

    def gpu_order(
        self, uuids: Sequence[str], minors: Sequence[int] = range(16), excluded: str = ""
    ) -> None:
        for number, (uuid, minor) in enumerate(zip(uuids, minors, strict=False)):
            folder = self.path / f"proc/driver/nvidia/gpus/0000:{0x10 + number:02x}:00.0"
            folder.mkdir(parents=True)
            text = f"Model: \t H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
            text += f"GPU Excluded:\t {'Yes' if uuid == excluded else 'No'}\n"
            (folder / "information").write_text(text)

    def process(self, pid: int, number: int, **environ: str) -> None:
        folder = self.path / "proc" / str(pid)
        folder.mkdir()
        text = "\0".join(f"{key}={value}" for key, value in environ.items())
        (folder / "environ").write_text(text)
        (folder / "cgroup").write_text(f"0::/kubepods/pod{uid(number)}/{CID}")

    def samples(self, metric: Metric) -> list[dict[str, str]]:
        return [
            dict(zip(metric.labels, sample.labels, strict=True))
            for sample in self.collect()
            if sample.metric is metric
        ]

    def values(self, metric: Metric) -> dict[tuple[str, ...], object]:
        return {s.labels: s.value for s in self.collect() if s.metric is metric}

    def collect(self) -> list[Sample]:
        return list(self.collector.collect())
