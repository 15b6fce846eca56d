"""Series of many nodes over a short time, from agents' pages or Prometheus, in one form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol, runtime_checkable

import numpy as np

from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.unread_counts import Unread
from rankscope_analyzers.numeric.arrays import Floats


@dataclass(frozen=True, slots=True)
class Series:
    """One series of one node.

    Args:
        labels: without those that Prometheus adds.
        times: (T,) Unix seconds, ascending.
        values: (T,) all of them finite.
    """

    node: str
    name: str
    labels: Mapping[str, str]
    times: Floats
    values: Floats

    @property
    def last(self) -> float:
        """Return the newest value."""
        return float(self.values[-1])

    @property
    def seconds(self) -> float:
        """Return the time from the first value to the last in seconds, 0 with one value."""
        return float(self.times[-1] - self.times[0])

    def increase(self) -> float:
        """Return by how much a counter grew, across resets; NaN with fewer than two values."""
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
        """Return since when it has had its newest value, None if for as long as was observed."""
        other = np.flatnonzero(self.values != self.values[-1])
        return float(self.times[other[-1] + 1]) if len(other) else None


def in_force(series: Iterable[Series], *states: str) -> Iterator[Series]:
    """Yield the newest of the series that differ only in these labels, which hold a state.

    Each state of an object is a series of its own: the former one ends with the value that it had.
    """
    found: dict[tuple[str, frozenset[tuple[str, str]]], list[Series]] = defaultdict(list)
    for one in series:
        rest = frozenset(item for item in one.labels.items() if item[0] not in states)
        found[one.node, rest].append(one)
    for several in found.values():
        newest = max(float(one.times[-1]) for one in several)
        yield from (one for one in several if one.times[-1] == newest)


BySeriesName = Mapping[str, Sequence[Series]]
"""Series of one node by the name of their metric."""


@runtime_checkable
class Dated(Protocol):
    """Series of one node whose age is known without looking at all of them."""

    @property
    def newest(self) -> float:
        """Return when the newest value was read, 0 if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Observed:
    """What was read.

    Args:
        by_node: by node, by metric name.
        source: where to find it again, for evidence: an agent's address or a query.
        unread: how many values were left out as they are not finite, by node and job.
    """

    by_node: Mapping[str, BySeriesName]
    source: str = ""
    unread: Mapping[str, Unread] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """Return the nodes that were read."""
        return frozenset(self.by_node)

    def named(self, name: str) -> Iterator[Series]:
        """Yield the series of a metric of this name."""
        for found in self.by_node.values():
            yield from found.get(name, ())

    def of(self, metric: Metric, **labels: str) -> Iterator[Series]:
        """Yield the series of a metric that have these labels."""
        if not labels:
            yield from self.named(metric.name)
            return
        wanted = labels.items()
        for series in self.named(metric.name):
            if wanted <= series.labels.items():
                yield series

    def all(self) -> Iterator[Series]:
        """Yield every series."""
        for found in self.by_node.values():
            yield from chain.from_iterable(found.values())

    def newest(self) -> Mapping[str, float]:
        """Return when each node's newest value was read, in Unix seconds."""
        return {node: _newest(found) for node, found in self.by_node.items()}

    def nodes_with(self, metrics: Iterable[Metric]) -> frozenset[str]:
        """Return the nodes that have a series of any of these metrics."""
        names = {metric.name for metric in metrics}
        return frozenset(
            node for node, found in self.by_node.items() if not names.isdisjoint(found)
        )

    def on(self, nodes: Collection[str]) -> Observed:
        """Return what was read of these nodes."""
        return replace(
            self,
            by_node={node: found for node, found in self.by_node.items() if node in nodes},
            unread={node: found for node, found in self.unread.items() if node in nodes},
        )


def _newest(found: BySeriesName) -> float:
    if isinstance(found, Dated):
        return found.newest
    every = chain.from_iterable(found.values())
    return max((float(one.times[-1]) for one in every), default=0.0)


def gathered(
    series: Iterable[Series], source: str = "", unread: Mapping[str, Unread] | None = None
) -> Observed:
    """Group series by node and name."""
    found: dict[str, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
    for one in series:
        found[one.node][one.name].append(one)
    return Observed(found, source, unread or {})
