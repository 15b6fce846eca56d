"""Validation between collectors and page: samples that would make the page invalid are dropped.

Prometheus rejects a whole page for one malformed or repeated series. So invalid samples are dropped
and counted here, and the others kept: names come from pods, and one pod's odd name must not make a
collector fail that reads all of them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rankscope_agent.contract.model import HistogramValue, Metric, Sample, Scrape

MAX_LABEL_BYTES = 1024
"""Longest label value on the page. Names of pods and nodes have at most 253 bytes, job ids 320;
more than three times that can only be text that does not belong in a label."""

_FLOAT_BITS = 1023  # a longer whole number overflows a 64-bit float

_METRIC_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# `le` belongs to histogram buckets, a leading double underscore to Prometheus itself.
_LABEL_NAME = re.compile(r"(?!__|le$)[a-zA-Z_][a-zA-Z0-9_]*")


_Key = tuple[str, tuple[str, ...]]


class _Page:
    """The families and series accepted so far for one page.

    Args:
        known: series whose metric and labels were accepted for the previous page.
    """

    def __init__(self, known: Mapping[_Key, Metric]) -> None:
        self._known = known
        self._families: dict[str, Metric] = {}
        self.series: dict[_Key, Metric] = {}

    def fault(self, sample: Sample) -> str:
        """Return why a sample cannot be on the page, or accept it and return an empty text."""
        metric = sample.metric
        key = metric.name, sample.labels
        declared = self._families.get(metric.name)
        if declared is not None and declared is not metric and declared != metric:
            return "declared in two ways"
        fault = ""
        if not self._was_accepted(key, metric):
            fault = "" if declared else _metric_fault(metric)
            fault = fault or _label_fault(sample)
        fault = fault or _value_fault(sample)
        if not fault and key in self.series:
            fault = f"repeats the series with labels {sample.labels}"
        if not fault:
            self._families[metric.name] = metric
            self.series[key] = metric
        return fault

    def _was_accepted(self, key: _Key, metric: Metric) -> bool:
        """Return True if metric and labels are those of the previous page, as they mostly are."""
        try:
            return self._known.get(key) is metric
        except TypeError:  # labels that are not texts may be unhashable
            return False


class Validator:
    """Drops samples that cannot be on one page together; of two equal series the first stays."""

    def __init__(self) -> None:
        self._known: Mapping[_Key, Metric] = {}

    def validate(self, scrapes: Sequence[Scrape]) -> tuple[Scrape, ...]:
        """Return the scrapes of one page without such samples."""
        page = _Page(self._known)
        validated = tuple(_validate_scrape(page, scrape) for scrape in scrapes)
        self._known = page.series
        return validated


def _validate_scrape(page: _Page, scrape: Scrape) -> Scrape:
    faults: list[str] = []
    kept = tuple(_accepted(page, scrape.samples, faults))
    if not faults:
        return scrape
    reason = f"{len(faults)} of {len(scrape.samples)} samples dropped, first: {faults[0]}"
    return dataclasses.replace(scrape, samples=kept, invalid=len(faults), invalid_reason=reason)


def _accepted(page: _Page, samples: Iterable[object], faults: list[str]) -> Iterator[Sample]:
    for sample in samples:
        if not isinstance(sample, Sample) or not isinstance(sample.metric, Metric):
            faults.append(f"expected a Sample of a Metric, got {sample!r:.200}")
            continue
        fault = page.fault(sample)
        if fault:
            faults.append(f"{sample.metric.name} {fault}"[:MAX_LABEL_BYTES])
        else:
            yield sample


def _metric_fault(metric: Metric) -> str:
    if not _METRIC_NAME.fullmatch(metric.name):
        return "has a name that Prometheus does not accept"
    if any(not _LABEL_NAME.fullmatch(label) for label in metric.labels):
        return f"has labels that Prometheus does not accept: {metric.labels}"
    if metric.kind not in ("counter", "gauge", "histogram"):
        return f"is of unknown kind {metric.kind!r}"
    if (metric.kind == "counter") != metric.name.endswith("_total"):
        return f"is a {metric.kind}; counters, and only they, end in _total"
    return ""


def _label_fault(sample: Sample) -> str:
    labels: object = sample.labels
    if not isinstance(labels, tuple) or len(labels) != len(sample.metric.labels):
        return f"takes labels {sample.metric.labels}, got {labels!r}"
    for value in labels:
        if not isinstance(value, str):
            return f"has a label that is not text: {value!r}"
        if not value.isascii() or len(value) > MAX_LABEL_BYTES:
            try:
                size = len(value.encode())
            except UnicodeEncodeError:
                return f"has a label that is not UTF-8: {value!r}"
            if size > MAX_LABEL_BYTES:
                return f"has a label of {size} bytes, more than {MAX_LABEL_BYTES}"
    return ""


def _value_fault(sample: Sample) -> str:
    value, kind = sample.value, sample.metric.kind
    if isinstance(value, HistogramValue):
        return _histogram_fault(value) if kind == "histogram" else f"is a {kind}, got a histogram"
    if kind == "histogram" or not _is_number(value):
        return f"is a {kind}, got {type(value).__name__}"
    if kind == "counter" and not 0 <= value < math.inf:
        return f"is a counter, got {value}"
    return ""


def _is_number(value: object) -> bool:
    """Return True if a value can be written as a 64-bit float."""
    if isinstance(value, int):
        return value.bit_length() <= _FLOAT_BITS
    return isinstance(value, float)


def _histogram_fault(value: HistogramValue) -> str:
    bounds = [bound for bound, _ in value.buckets]
    counts = [0, *(count for _, count in value.buckets), value.count]
    if not all(_is_number(number) for number in (*bounds, *counts, value.sum)):
        return "is a histogram with a part that is not a number"
    if not all(math.isfinite(bound) for bound in bounds) or sorted(set(bounds)) != bounds:
        return f"has bucket bounds that do not increase: {bounds}"
    if sorted(counts) != counts:
        return f"has bucket counts that decrease: {counts[1:]}"
    return ""
