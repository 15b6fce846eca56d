"""Agents' pages of the last evaluations: every page is parsed once, on arrival.

A page is as old as what it shows: between two pages of a node as much time has passed as between
their snapshots, by the node's own clock, not as between the answers.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice

import numpy as np

from rankscope_agent.contract.metrics import agent as metrics
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.observed import BySeriesName, Observed, Series
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.numeric.arrays import Booleans, Floats

MAXIMUM_SERIES_OF_A_PAGE = 20_000
"""An agent shows 2,000 series by default; ten times that is not an agent's page."""

SHARED_LABELS = 1 << 15
"""Texts of labels whose meaning is shared by the nodes that have them: ports and devices are called
alike on all nodes of a kind, which is most of a page."""

_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_SNAPSHOT = re.compile(rf"^{metrics.SNAPSHOT_TIMESTAMP.name} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """The page of one agent, read at one time (Unix seconds)."""

    node: str
    time: float
    text: str


_Key = tuple[str, str]
"""A series on a page: its metric's name, and what stands between its braces."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One page of a node.

    Args:
        look: number of the look that it was read at.
        time: Unix seconds when it was read.
        taken: Unix seconds when its snapshot was taken, by the node's clock; None if it is silent.
        keys: its series; the same list as that of the page before where they are the same.
        values: (len(keys),) what they say.
    """

    look: int
    time: float
    taken: float | None
    keys: list[_Key]
    values: Floats


class PageHistory:
    """The newest pages of many nodes.

    Args:
        reads: series that are kept; others are left out.
        polls: number of polls that are kept.
    """

    def __init__(self, reads: Iterable[Metric], polls: int) -> None:
        names = "|".join(sorted(re.escape(metric.name) for metric in reads))
        self._line = re.compile(rf"^({names})(?:\{{(.*)\}})? (\S+)", re.MULTILINE)
        self._kept = polls
        self._nodes: dict[str, _Node] = {}
        self.polls = 0

    def add(self, pages: Iterable[Page], oldest: float = -math.inf) -> tuple[AnalysisError, ...]:
        """Take the pages of one look; of a node that answers no more the older ones stay a while.

        A line that is none of Prometheus' text format is skipped, of a series that a page shows
        twice the second line, and of a page that is too long the rest.

        Args:
            pages: of all nodes that answered.
            oldest: Unix time; pages that were read before it are dropped.

        Returns:
            The errors of pages that made something raise; they are left out.
        """
        self.polls += 1
        made = [attempt("source", page.node, partial(self._add, page)) for page in pages]
        for name, node in list(self._nodes.items()):
            if not node.forget(self.polls - self._kept, oldest):
                del self._nodes[name]
        return tuple(one for one in made if one is not None)

    def _add(self, page: Page) -> None:
        self._nodes.setdefault(page.node, _Node()).add(page, self._line, self.polls)

    def observed(self, source: str = "") -> Observed:
        """Return the series of all pages that are kept."""
        return Observed({name: node.series(name) for name, node in self._nodes.items()}, source)


def from_pages(pages: Iterable[Page], reads: Iterable[Metric], source: str = "") -> Observed:
    """Put pages together, of any number of nodes and times."""
    history = PageHistory(reads, polls=1)
    history.add(pages)
    return history.observed(source)


class _Node:
    """The pages of one node, and whose series their lines are."""

    __slots__ = ("_columns", "_rows")

    def __init__(self) -> None:
        self._columns: list[_Column] = []
        self._rows: dict[_Key, Mapping[str, str]] = {}

    def add(self, page: Page, line: re.Pattern[str], look: int) -> None:
        keys, values = _read(page.text, line)
        if self._columns and keys == self._columns[-1].keys:
            keys = self._columns[-1].keys
        self._columns.append(_Column(look, page.time, _taken(page.text), keys, values))

    def forget(self, look: int, oldest: float) -> bool:
        """Drop the pages up to this look, and those before a time; return whether any is left."""
        self._columns = [one for one in self._columns if one.look > look and one.time >= oldest]
        return bool(self._columns)

    def series(self, node: str) -> BySeriesName:
        """Return all series by metric name; pages need not show the same ones."""
        moments = np.array(_moments(self._columns), dtype=np.float64)
        order = np.argsort(moments, kind="stable")
        times = moments[order]
        columns = [self._columns[index] for index in order]
        self._arrange(columns)
        table = _table(columns, list(self._rows))
        known: Booleans = np.equal(table, table)  # NaN is not itself
        whole: Booleans = np.all(known, axis=1)
        found: dict[str, list[Series]] = {}
        for ((name, _), meaning), values, here, full in zip(
            self._rows.items(), table, known, whole, strict=True
        ):
            one = (
                Series(node, name, meaning, times, values)
                if full
                else Series(node, name, meaning, times[here], values[here])
            )
            found.setdefault(name, []).append(one)
        return found

    def _arrange(self, columns: Sequence[_Column]) -> None:
        """Make a row for each series, and read the labels of those that are new."""
        lists = {id(column.keys): column.keys for column in columns}
        keys = dict.fromkeys(key for shown in lists.values() for key in shown)
        if keys.keys() != self._rows.keys():
            self._rows = {key: self._rows.get(key) or labels(key[1]) for key in keys}


def _moments(columns: Sequence[_Column]) -> list[float]:
    """Return how old pages are by our clock: answers are late by as much as the quickest was."""
    known = ((column, column.taken) for column in columns if column.taken is not None)
    late = min((column.time - taken for column, taken in known), default=0.0)
    return [one.time if one.taken is None else one.taken + late for one in columns]


def _table(columns: Sequence[_Column], rows: Sequence[_Key]) -> Floats:
    """Return (rows, columns) values, NaN where a page does not show a series."""
    first = columns[0].keys
    if first == rows and all(column.keys is first for column in columns):
        return np.array([column.values for column in columns], dtype=np.float64).T.copy()
    numbers = {key: number for number, key in enumerate(rows)}
    key_sets = {id(column.keys): column.keys for column in columns}
    rows_of = {name: [numbers[key] for key in keys] for name, keys in key_sets.items()}
    table = np.full((len(rows), len(columns)), np.nan)
    for number, column in enumerate(columns):
        table[rows_of[id(column.keys)], number] = column.values
    return table


def _read(text: str, line: re.Pattern[str]) -> tuple[list[_Key], Floats]:
    found: dict[_Key, float] = {}
    for match in islice(line.finditer(text), MAXIMUM_SERIES_OF_A_PAGE):
        name, inside, number = match.groups()
        value = _number(number)
        if value is not None:
            found.setdefault((sys.intern(name), sys.intern(inside or "")), value)
    return list(found), np.fromiter(found.values(), np.float64, len(found))


def _taken(text: str) -> float | None:
    found = _SNAPSHOT.search(text)
    return _number(found[1]) if found else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


@lru_cache(SHARED_LABELS)
def labels(text: str) -> Mapping[str, str]:
    """Return the labels of a series from what stands between its braces.

    Names and values are interned: one GPU's stand in fifty series of its page.
    """
    return {sys.intern(name): sys.intern(_unescaped(value)) for name, value in _LABEL.findall(text)}


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
