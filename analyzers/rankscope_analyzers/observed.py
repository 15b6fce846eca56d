"""Series of many nodes over a short time: what agents' pages or Prometheus say, in one form."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

from rankscope_agent.model import Metric
from rankscope_analyzers.arrays import Floats

_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")

MAXIMUM_SERIES_OF_A_PAGE = 20_000
"""An agent shows 2,000 series unless told otherwise; ten times that is not an agent's page."""


@dataclass(frozen=True, slots=True)
class Page:
    """The page of one agent, read at one time (Unix seconds)."""

    node: str
    time: float
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """One series of one node.

    Args:
        labels: without those that Prometheus adds.
        times: (T,) Unix seconds, rising.
        values: (T,) finite or infinite values, none of them NaN.
    """

    node: str
    name: str
    labels: Mapping[str, str]
    times: Floats
    values: Floats

    @property
    def last(self) -> float:
        """The newest value."""
        return float(self.values[-1])

    @property
    def seconds(self) -> float:
        """The time from the first value to the last, 0 with one value."""
        return float(self.times[-1] - self.times[0])

    def increase(self) -> float:
        """Return by how much a counter grew, over resets; NaN with fewer than two values."""
        if len(self.values) < 2:
            return float("nan")
        grown = np.diff(self.values)
        return float(np.where(grown < 0, self.values[1:], grown).sum())

    def rate(self) -> float:
        """Return the increase per second; NaN with fewer than two values."""
        return self.increase() / self.seconds if self.seconds > 0 else float("nan")

    def first_change(self) -> float | None:
        """Return when the value was first seen to differ from the first one, None if never."""
        changed = np.flatnonzero(self.values != self.values[0])
        return float(self.times[changed[0]]) if len(changed) else None

    def held_since(self) -> float | None:
        """Return since when it has had its newest value, None if for as long as was looked at."""
        other = np.flatnonzero(self.values != self.values[-1])
        return float(self.times[other[-1] + 1]) if len(other) else None


@dataclass(frozen=True, slots=True)
class Observed:
    """What was read.

    Args:
        series: by metric name.
        source: how to find it again, for evidence: an agent's address or a query.
    """

    series: Mapping[str, tuple[Series, ...]]
    source: str = ""
    nodes: frozenset[str] = field(default_factory=frozenset)

    def of(self, metric: Metric, **labels: str) -> Iterator[Series]:
        """Yield the series of a metric that have these labels."""
        for series in self.series.get(metric.name, ()):
            if all(series.labels.get(name) == value for name, value in labels.items()):
                yield series

    def has(self, metric: Metric) -> bool:
        """Whether there is any series of this metric."""
        return metric.name in self.series

    def nodes_with(self, metrics: Iterable[Metric]) -> frozenset[str]:
        """Return the nodes that have a series of any of these metrics."""
        return frozenset(
            series.node for metric in metrics for series in self.series.get(metric.name, ())
        )


def from_pages(pages: Iterable[Page], metrics: Iterable[Metric], source: str = "") -> Observed:
    """Put pages together, of any number of nodes and times; other metrics are left out.

    A line that is none of Prometheus' text format is skipped, and of a page that is too long the
    rest.
    """
    names = "|".join(sorted(re.escape(metric.name) for metric in metrics))
    line = re.compile(rf"^({names})(?:\{{(.*)\}})? (\S+)", re.MULTILINE)
    read: dict[str, list[_Reading]] = defaultdict(list)
    for page in pages:
        read[page.node].append(_reading(page, line))
    series = chain.from_iterable(_of_node(node, found) for node, found in read.items())
    return _observed(series, frozenset(read), source)


_Key = tuple[str, str]
"""A series on a page: its metric's name, and what stands between its braces."""


@dataclass(frozen=True, slots=True)
class _Reading:
    time: float
    keys: list[_Key]
    values: list[float]


def _reading(page: Page, line: re.Pattern[str]) -> _Reading:
    keys, values = [], []
    for found in islice(line.finditer(page.text), MAXIMUM_SERIES_OF_A_PAGE):
        name, text, number = found.groups()
        value = _number(number)
        if value is not None:
            keys.append((name, text or ""))
            values.append(value)
    return _Reading(page.time, keys, values)


def _of_node(node: str, readings: list[_Reading]) -> Iterator[Series]:
    """Yield a node's series; pages that show the same series in the same order make a table."""
    readings.sort(key=lambda reading: reading.time)
    keys = readings[0].keys
    if len(set(keys)) == len(keys) and all(one.keys == keys for one in readings):
        times = np.array([one.time for one in readings], dtype=np.float64)
        table = np.array([one.values for one in readings], dtype=np.float64).T.copy()
        for (name, text), values in zip(keys, table, strict=True):
            yield Series(node, name, labels(text), times, values)
        return
    points: dict[_Key, list[tuple[float, float]]] = defaultdict(list)
    for one in readings:
        for key, value in zip(one.keys, one.values, strict=True):
            points[key].append((one.time, value))
    for (name, text), pairs in points.items():
        array = np.array(sorted(pairs), dtype=np.float64)
        yield Series(node, name, labels(text), array[:, 0], array[:, 1])


def gathered(series: Iterable[Series], source: str = "") -> Observed:
    """Put series together by name."""
    kept = list(series)
    return _observed(kept, frozenset(one.node for one in kept), source)


def _observed(series: Iterable[Series], nodes: frozenset[str], source: str) -> Observed:
    by_name: dict[str, list[Series]] = defaultdict(list)
    for one in series:
        by_name[one.name].append(one)
    return Observed({name: tuple(found) for name, found in by_name.items()}, source, nodes)


def labels(text: str) -> dict[str, str]:
    """Return the labels of a series from what stands between its braces."""
    return {name: _unescaped(value) for name, value in _LABEL.findall(text)}


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], value)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value
