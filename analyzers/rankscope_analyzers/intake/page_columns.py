"""Agents' pages as columns: which series a page shows, and one number for each of them.

The pages of 2,048 nodes have more than a million series, of which an analyzer reads some: these
become `Series` when they are requested.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

import numpy as np

from rankscope_analyzers.intake import readable_values
from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.intake.unread_counts import Unread, job_named
from rankscope_analyzers.numeric.arrays import Floats

MAXIMUM_SERIES_OF_A_PAGE = 20_000
"""An agent shows 2,000 series by default; ten times that is not an agent's page."""

SHARED_LABELS = 1 << 14
"""Texts of labels that are kept parsed: those that are the same on all nodes of a kind, which are
most of a page, and those of the nodes of a job, while it is judged."""

SHAPES = 1 << 10
"""Kinds of pages, by the metrics that they show, and how many series of each."""

_LINE = re.compile(r"^([a-zA-Z_][a-zA-Z0-9_]*)(?:\{(.*)\})? (\S+)", re.MULTILINE)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Layout:
    """Which series a page shows.

    Args:
        spans: index range of each metric's series, by its name; shared by the nodes of a kind.
        texts: the text between the braces of each series.
    """

    spans: Mapping[str, slice]
    texts: tuple[str, ...]

    def of(self, name: str) -> tuple[str, ...]:
        """Return the texts between the braces of the series of a metric."""
        span = self.spans.get(name)
        return () if span is None else self.texts[span]


@dataclass(frozen=True, slots=True)
class Column:
    """The values of one page.

    Args:
        layout: of its series; the same object as that of the previous page if they are the same.
        values: (len(layout.texts),) all of them finite.
        unread: how many values were left out as they are not, by job.
    """

    layout: Layout
    values: Floats
    unread: Unread = field(default_factory=dict)


def column(text: str, names: frozenset[str], before: Layout | None) -> Column:
    """Return the series of a page that have one of these names.

    Lines that are not in Prometheus' text format are skipped, as are further lines of a series that
    a page shows twice, and the rest of a page that is too long. Values that are not finite numbers
    are left out and counted.

    Args:
        text: of the page.
        names: of metrics.
        before: the layout of the node's last page.
    """
    shown: dict[str, dict[str, float]] = {}
    unread: Counter[str] = Counter()
    lines = (found.groups() for found in _LINE.finditer(text))
    for name, inside, number in islice(
        (one for one in lines if one[0] in names), MAXIMUM_SERIES_OF_A_PAGE
    ):
        value = readable_values.number(number)
        if value is None:
            unread[_job(inside or "")] += 1
        else:
            shown.setdefault(name, {}).setdefault(inside or "", value)
    values = [value for several in shown.values() for value in several.values()]
    return Column(_layout(shown, before), np.array(values, dtype=np.float64), unread)


def _layout(shown: Mapping[str, Mapping[str, float]], before: Layout | None) -> Layout:
    spans = _spans(tuple((name, len(several)) for name, several in shown.items()))
    texts = tuple(text for several in shown.values() for text in several)
    if before is not None and before.spans is spans and before.texts == texts:
        return before
    return Layout(spans, tuple(map(sys.intern, texts)))


@lru_cache(SHAPES)
def _spans(counts: tuple[tuple[str, int], ...]) -> Mapping[str, slice]:
    spans, start = {}, 0
    for name, count in counts:
        spans[sys.intern(name)] = slice(start, start + count)
        start += count
    return spans


class NodeSeries(Mapping[str, Sequence[Series]]):
    """The series of one node by metric name, made when they are requested.

    Most metrics are read once: those that are read again, as every layer asks where ranks run, are
    kept from then on. To make them anew takes a fifth of a report on a thousand nodes, whose texts
    of labels are more than are kept parsed.

    Args:
        node: name of the node.
        times: (T,) Unix seconds of its pages, ascending.
        columns: the values of each of these; they need not show the same series.
    """

    __slots__ = ("_columns", "_kept", "_layouts", "_names", "_node", "_times")

    def __init__(self, node: str, times: Floats, columns: Sequence[Column]) -> None:
        self._node = node
        self._times = times
        self._columns = columns
        self._kept: dict[str, Sequence[Series]] = {}
        self._layouts = list({id(one.layout): one.layout for one in columns}.values())
        self._names: Mapping[str, object] = self._layouts[0].spans if self._layouts else {}
        if len(self._layouts) > 1:
            self._names = dict.fromkeys(name for one in self._layouts for name in one.spans)

    def __iter__(self) -> Iterator[str]:
        """Return the names of the metrics that have series."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return how many metrics have series."""
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        """Return True if a metric has a series."""
        return name in self._names

    def __getitem__(self, name: str) -> Sequence[Series]:
        """Return the series of a metric."""
        if kept := self._kept.get(name):
            return kept
        series = self._made(name)
        self._kept[name] = series if name in self._kept else ()
        return series

    def _made(self, name: str) -> Sequence[Series]:
        found = [layout.of(name) for layout in self._layouts]
        if not any(found):
            raise KeyError(name)
        # A fault adds series to a page: those of most metrics stay the same.
        if all(texts == found[0] for texts in found):
            return self._of_all_pages(name, found[0])
        return self._of_some_pages(name, found)

    @property
    def newest(self) -> float:
        """Return when the newest value was read, 0 if there is none."""
        shown = (len(one.values) > 0 for one in self._columns)
        return max((float(self._times[at]) for at, some in enumerate(shown) if some), default=0.0)

    def _of_all_pages(self, name: str, texts: Sequence[str]) -> Sequence[Series]:
        table = np.array([one.values[one.layout.spans[name]] for one in self._columns]).T.copy()
        return [
            Series(self._node, name, labels(text), self._times, values)
            for text, values in zip(texts, table, strict=True)
        ]

    def _of_some_pages(self, name: str, found: Sequence[Sequence[str]]) -> Sequence[Series]:
        texts = dict.fromkeys(text for several in found for text in several)
        rows = {text: row for row, text in enumerate(texts)}
        table = np.full((len(rows), len(self._columns)), np.nan)
        for at, one in enumerate(self._columns):
            if name in one.layout.spans:
                chosen = [rows[text] for text in one.layout.of(name)]
                table[chosen, at] = one.values[one.layout.spans[name]]
        return [self._of_known(name, text, table[row]) for text, row in rows.items()]

    def _of_known(self, name: str, text: str, values: Floats) -> Series:
        known = ~np.isnan(values)
        if known.all():
            return Series(self._node, name, labels(text), self._times, values)
        return Series(self._node, name, labels(text), self._times[known], values[known])


def _job(text: str) -> str:
    """Return the job that a series is about from the text between its braces."""
    return job_named(dict(_LABEL.findall(text)).get("job_id"))


@lru_cache(SHARED_LABELS)
def labels(text: str) -> Mapping[str, str]:
    """Return the labels of a series from the text between its braces.

    Names and values are interned: those of one GPU occur in fifty series of its page.
    """
    return {sys.intern(name): sys.intern(_unescaped(value)) for name, value in _LABEL.findall(text)}


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
