"""Agents' pages of the last evaluations: every page is parsed once, on arrival.

A page is as old as what it shows: the time between two pages of a node is that between their
snapshots, by the node's own clock, not that between the responses.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rankscope_agent.contract.metrics import agent as metrics
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake import readable_values
from rankscope_analyzers.intake.agent_client import GZIP
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.intake.page_columns import Column, NodeSeries, column
from rankscope_analyzers.intake.unread_counts import Unread
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt

_SNAPSHOT = re.compile(rf"^{metrics.SNAPSHOT_TIMESTAMP.name} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """The page of one agent, read at one time.

    Args:
        node: that it is of.
        time: Unix seconds.
        body: its text, or the same as gzip packs it, which takes a tenth.
    """

    node: str
    time: float
    body: str | bytes

    @property
    def text(self) -> str:
        """Return its text."""
        if isinstance(self.body, str):
            return self.body
        return zlib.decompressobj(wbits=GZIP).decompress(self.body).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One page of a node.

    Args:
        look: number of the look that it was read at.
        time: Unix seconds when it was read.
        taken: Unix seconds when its snapshot was taken, by the node's clock; None if unknown.
        column: its values.
    """

    look: int
    time: float
    taken: float | None
    column: Column


class PageHistory:
    """The newest pages of many nodes.

    Args:
        reads: series that are kept; others are left out.
        polls: number of polls that are kept.
    """

    def __init__(self, reads: Iterable[Metric], polls: int) -> None:
        self._names = frozenset(metric.name for metric in reads)
        self._kept = polls
        self._nodes: dict[str, list[_Snapshot]] = {}
        self.polls = 0

    def add(self, pages: Iterable[Page], oldest: float = -math.inf) -> tuple[AnalysisError, ...]:
        """Add the pages of one look; those of a node that answers no more are kept a while.

        Args:
            pages: of all nodes that answered.
            oldest: Unix time; pages that were read before it are dropped.

        Returns:
            The errors of pages that made something raise; they are left out.
        """
        self.polls += 1
        made = [attempt("source", page.node, partial(self._add, page)) for page in pages]
        first = self.polls - self._kept
        for name, known in list(self._nodes.items()):
            kept = [one for one in known if one.look > first and one.time >= oldest]
            self._nodes[name] = kept
            if not kept:
                del self._nodes[name]
        return tuple(one for one in made if one is not None)

    def _add(self, page: Page) -> None:
        known, text = self._nodes.setdefault(page.node, []), page.text
        shown = column(text, self._names, known[-1].column.layout if known else None)
        known.append(_Snapshot(self.polls, page.time, _snapshot_time(text), shown))

    def observed(self, source: str = "") -> Observed:
        """Return the series of all pages that are kept."""
        series = {name: _series(name, known) for name, known in self._nodes.items()}
        unread = {name: _unread(known) for name, known in self._nodes.items()}
        return Observed(series, source, {name: one for name, one in unread.items() if one})


def from_pages(pages: Iterable[Page], reads: Iterable[Metric], source: str = "") -> Observed:
    """Combine pages, of any number of nodes and times."""
    history = PageHistory(reads, polls=1)
    history.add(pages)
    return history.observed(source)


def _series(node: str, pages: Sequence[_Snapshot]) -> NodeSeries:
    """Return all series of a node's pages, in order of their time."""
    moments = np.array(_moments(pages), dtype=np.float64)
    order = np.argsort(moments, kind="stable")
    return NodeSeries(node, moments[order], [pages[index].column for index in order])


def _unread(pages: Sequence[_Snapshot]) -> Unread:
    """Return how many series of a node could not be read in some page, by job."""
    most: Counter[str] = Counter()
    for page in pages:
        if page.column.unread:
            most |= Counter(page.column.unread)
    return most


def _moments(pages: Sequence[_Snapshot]) -> list[float]:
    """Return how old pages are by our clock: responses are late by as much as the quickest was."""
    known = ((page, page.taken) for page in pages if page.taken is not None)
    late = min((page.time - taken for page, taken in known), default=0.0)
    return [one.time if one.taken is None else one.taken + late for one in pages]


def _snapshot_time(text: str) -> float | None:
    found = _SNAPSHOT.search(text)
    return None if found is None else readable_values.number(found[1])
