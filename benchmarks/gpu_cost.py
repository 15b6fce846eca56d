"""CPU time of one look at a simulated node of 8 GPUs: reading, validation and the page's text.

The clock of the node and of the session advances by a second between two looks, as in the agent, so
that what is read more rarely (single links, partitioning) is counted as often as it happens. The
figure includes the cost of the simulated driver; that of a real one, whose calls wait for the GPU
more than they compute, is not included.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rankscope_agent.contract.model import Sample, Scrape, Snapshot
from rankscope_agent.serving.exposition import TEXT, render
from rankscope_agent.settings.simulation import parse_simulation
from rankscope_agent.sources.gpus.session import Session
from rankscope_agent.sources.gpus.simulation.nvml import SimulatedNvml

NODES = ("h100x8", "h100x8:nvlink@all", "h100x8-mig", "a100x8")
ROUNDS = 7
LOOKS = 60
GOAL_MILLISECONDS = 15.0
GOAL_SERIES = 55
MEASURED_NODE = "h100x8"
"""The node of the goals."""


@dataclass(frozen=True, slots=True)
class GpuCost:
    """CPU milliseconds of one look, in the median round.

    Args:
        reading: until the samples are available.
        page: from there to the text.
        worst: the most expensive of all looks at that node, reading only.
        series_per_gpu: of the GPU with the most.
    """

    reading: float
    page: float
    worst: float
    series_per_gpu: int


class _Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class _Node:
    """A simulated node and its cost so far."""

    def __init__(self, text: str) -> None:
        simulation = parse_simulation(text)
        if simulation is None:
            raise ValueError("no node is named")
        self._clock = _Clock()
        patience = 60.0  # nothing hangs here
        nvml = SimulatedNvml(simulation, self._clock)
        self._session = Session(nvml, patience, patience, self._clock)
        self._rounds: list[tuple[float, float]] = []
        self._worst = 0.0
        self._samples = self._read()

    def _read(self) -> tuple[Sample, ...]:
        self._clock.now += 1
        return tuple(self._session.read())

    def look(self, looks: int) -> None:
        """Look several times; all threads of the process count."""
        reading = page = 0.0
        for _ in range(looks):
            begin = time.process_time()
            self._samples = self._read()
            read = time.process_time()
            scrape = Scrape("nvml", True, 0.0, self._samples, "", None)
            render(Snapshot("node", self._clock.now, (scrape,)), TEXT, None)
            page += time.process_time() - read
            reading += read - begin
            self._worst = max(self._worst, read - begin)
        self._rounds.append((reading / looks * 1000, page / looks * 1000))

    def cost(self) -> GpuCost:
        """Return the medians over the rounds."""
        gpus = [sample.labels[0] for sample in self._samples if len(sample.labels) >= 3]
        reading, page = (statistics.median(part) for part in zip(*self._rounds, strict=True))
        return GpuCost(reading, page, self._worst * 1000, max(map(gpus.count, set(gpus))))


def measure(rounds: int = ROUNDS, looks: int = LOOKS) -> Mapping[str, GpuCost]:
    """Look at all nodes alternately."""
    nodes = {text: _Node(text) for text in NODES}
    for _ in range(rounds):
        for node in nodes.values():
            node.look(looks)
    return {text: node.cost() for text, node in nodes.items()}


def report(costs: Mapping[str, GpuCost]) -> str:
    """Write the figures and the goals."""
    lines = [
        f"{text:18} {cost.reading:5.2f} ms CPU to read 8 GPUs, {cost.page:.2f} ms for the page"
        f" (worst look {cost.worst:.2f} ms); at most {cost.series_per_gpu} series a GPU"
        for text, cost in costs.items()
    ]
    goal = f"goals on {MEASURED_NODE}: at most {GOAL_MILLISECONDS:g} ms, {GOAL_SERIES} series a GPU"
    return "\n".join([*lines, goal])
