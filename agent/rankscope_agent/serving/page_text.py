"""Writes samples as lines of Prometheus' text format and of OpenMetrics 1.0.

The two differ only in their comments. The result equals that of prometheus_client, byte for byte.
Lines are kept from page to page, because names and labels seldom change, and most values do not
either.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

from rankscope_agent.contract.model import HistogramValue, Metric, Sample


class SeriesLines:
    """The last written lines of series, kept while pages contain them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, tuple[str, ...]], tuple[str, float, str]] = {}
        self._used: dict[tuple[str, tuple[str, ...]], tuple[str, float, str]] = {}

    def of(self, name: str, labels: tuple[str, ...], values: tuple[str, ...], number: float) -> str:
        """Return the line of a series."""
        key = name, values
        known = self._kept.get(key)
        if known is None or known[1] != number:
            series = known[0] if known else _series_name(name, labels, values)
            known = series, number, f"{series} {number_text(number)}\n"
        self._used[key] = known
        return known[2]

    def end_page(self) -> None:
        """Forget the series that the page did not contain."""
        self._kept, self._used = self._used, {}


def write_text(samples: Iterable[Sample], known: SeriesLines) -> bytes:
    """Return a page in Prometheus' text format, version 0.0.4."""
    return "".join(_lines(samples, known, _text_comments)).encode()


def write_openmetrics(samples: Iterable[Sample], known: SeriesLines) -> bytes:
    """Return a page in OpenMetrics, version 1.0.0."""
    lines = _lines(samples, known, _openmetrics_comments)
    return "".join(itertools.chain(lines, ("# EOF\n",))).encode()


def _lines(
    samples: Iterable[Sample], known: SeriesLines, comments: Callable[[Metric], str]
) -> Iterator[str]:
    """Return the lines of families, in the order in which their metrics first appear."""
    families: dict[str, list[str]] = {}
    for sample in samples:
        metric, value = sample.metric, sample.value
        lines = families.get(metric.name)
        if lines is None:
            lines = families[metric.name] = [comments(metric)]
        if isinstance(value, HistogramValue):
            lines += _histogram_lines(sample, value, known)
        else:
            lines.append(known.of(metric.name, metric.labels, sample.labels, value))
    known.end_page()
    return itertools.chain.from_iterable(families.values())


def _histogram_lines(sample: Sample, value: HistogramValue, known: SeriesLines) -> Iterator[str]:
    metric, labels = sample.metric, sample.labels
    for bound, count in (*value.buckets, (math.inf, value.count)):
        values = (*labels, number_text(bound))
        yield known.of(f"{metric.name}_bucket", (*metric.labels, "le"), values, count)
    for suffix, total in (("count", value.count), ("sum", value.sum)):
        yield known.of(f"{metric.name}_{suffix}", metric.labels, labels, total)


def _series_name(name: str, labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not labels:
        return name
    pairs = sorted(zip(labels, values, strict=True))
    return name + "{" + ",".join(f'{label}="{_quotable(value)}"' for label, value in pairs) + "}"


def _text_comments(metric: Metric) -> str:
    help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.name} {help_text}\n# TYPE {metric.name} {metric.kind}\n"


def _openmetrics_comments(metric: Metric) -> str:
    family = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
    return f"# HELP {family} {_quotable(metric.help)}\n# TYPE {family} {metric.kind}\n"


def _quotable(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


LONGEST_PLAIN = 6
"""Digits before the decimal point up to which Go writes no exponent."""


def number_text(value: float) -> str:
    """Return a number as Prometheus writes it: exponents from a million on, and +Inf."""
    text = repr(float(value))
    point = text.find(".")
    if value > 0 and point > LONGEST_PLAIN:
        mantissa = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{point - 1:02d}"
    return _NOT_FINITE.get(text, text)


_NOT_FINITE = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
