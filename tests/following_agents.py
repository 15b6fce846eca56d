"""Agents that follow one another on a node, as the training collector sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from collected_page import CREATED_NS, Clock, Page, collector
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import HistogramValue
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.continuation import Continuation
from rankscope_agent.sources.training.totals_file import TotalsFile
from ring_writer import NS, RingWriter

JOB = "team/job"
NEWEST = (1, 0.1)
"""A rank that begins anew has made its newest step; `hang` and `pace` need to know as much."""

NEXT = {"created_unix_ns": CREATED_NS + 5 * NS, "pid": 4343}


@dataclass
class Node:
    """A node on which agents follow one another, with a clock of its own."""

    folder: Path
    clock: Clock = field(default_factory=Clock)

    @property
    def state(self) -> Path:
        return self.folder / "state.json"

    def agent(self) -> TrainingCollector:
        """Start an agent; the previous one is taken for dead."""
        made = collector(self.folder, self.clock)
        store = TotalsFile(self.state)
        made.continue_after(Continuation(store, [str(self.folder)], self.clock.now))
        return made

    def page(self, agent: TrainingCollector, seconds: float = 0.0) -> Page:
        """Return the page after a run, some seconds later."""
        self.clock.now += seconds
        page = Page(agent)
        writer = agent._continuation._store._writer
        if writer is not None:
            writer.join()
        return page

    def ended(self, agent: TrainingCollector) -> None:
        """End an agent as by SIGTERM."""
        agent.finish()


def steps(page: Page, rank: int = 0) -> tuple[object, object]:
    """Return the steps of a rank and their seconds."""
    return page.rank(metrics.STEPS, rank), page.rank(metrics.STEP_SECONDS, rank)


def count(page: Page) -> int:
    latency = page.value(metrics.STEP_LATENCY, JOB)
    assert isinstance(latency, HistogramValue)
    assert latency.sum == pytest.approx(latency.count / 10)
    return latency.count


def write_read(node: Node, agent: TrainingCollector, writer: RingWriter, records: int) -> Page:
    """Let a rank make steps while an agent reads them, so that none is overwritten before."""
    page = node.page(agent, 1.0)
    for _ in range(records // 10):
        writer.step(10)
        page = node.page(agent, 1.0)
    return page
