"""Rings of ranks at their start, as probes write them, and what the agent's page says of them."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from collected_page import CREATED, CREATED_NS, Clock
from rankscope_agent.contract.model import Sample, Scrape, Snapshot
from rankscope_agent.serving.exposition import TEXT, render
from rankscope_agent.sources.collector import Incomplete
from rankscope_agent.sources.training.collector import TrainingCollector, boot_unix_seconds
from ring_writer import NS, RingWriter, SpanWriter

PATIENCE = 300
"""Runs of a collector that may come before it has looked at all directories."""

JOIN = 6
DONE, FAILED = 1, 2
"""Kinds and outcomes of spans, as the probe documents them."""


def ticks_of(unix_seconds: float) -> int:
    """Return when a process started, as its ring has it, for one that began at this moment."""
    return round((unix_seconds - boot_unix_seconds(Clock())) * os.sysconf("SC_CLK_TCK"))


class Rank:
    """A rank whose process began 20 s before its ring, and met the others 10 s before it.

    Args:
        place: directory of the ring.
        number: of the rank.
        at: seconds by which the ring is younger than others.
        header: of the ring.
    """

    def __init__(self, place: Path, number: int = 0, *, at: float = 0.0, **header: Any) -> None:
        name, created = f"{4242 + number}-{round(at)}", CREATED_NS + round(at * NS)
        own = {"pid": 4242 + number, "created_unix_ns": created}
        header = {"rank": number, **own, **header}
        self.ticks = header.setdefault("process_start_ticks", ticks_of(CREATED + at - 20))
        self.spans = SpanWriter(place, f"{name}.span", **own)
        self.ring = RingWriter(place, f"{name}.ring", **header)
        self.created_ns = created

    def joins(self, seconds: float, outcome: int = DONE, seq: int = 1) -> None:
        """Meet the others, which takes so long."""
        start, duration = self.created_ns - 10 * NS, round(seconds * NS)
        self.spans.write(seq, JOIN, start_ns=start, duration_ns=duration, outcome=outcome)

    def steps(self, after: float) -> None:
        """End the first step so many seconds after the ring was made, and one more."""
        self.ring.step(step=1, start_unix_ns=self.created_ns + round(after * NS))


def whole_run(read: TrainingCollector) -> tuple[Sample, ...]:
    """Return what a run of the collector gives that has found all rings, however busy the node."""
    for _ in range(PATIENCE):
        with contextlib.suppress(Incomplete):
            return tuple(read.collect())
        time.sleep(0.1)
    return tuple(read.collect())


def page_text(read: TrainingCollector, node: str, at: float) -> str:
    """Return an agent's page with what a run of the collector gives at a Unix time."""
    scrape = Scrape("training", True, 0.1, whole_run(read), "", at)
    return render(Snapshot(node, at, (scrape,)), TEXT, None).decode()
