"""Lines of the page: the same bytes that prometheus_client writes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest as reference_text
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as ClientFamily
from prometheus_client.openmetrics.exposition import generate_latest as reference_openmetrics
from prometheus_client.utils import floatToGoString

from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.model import HistogramValue, Metric, Sample
from rankscope_agent.serving.page_text import (
    SeriesLines,
    number_text,
    write_openmetrics,
    write_text,
)

HISTOGRAM = HistogramValue(((0.1, 1), (2.5, 3), (1e6, 3)), 1_234_567, 7.5)
FORMATS = ((write_text, reference_text), (write_openmetrics, reference_openmetrics))
ODD = ('a"b', "a\\b", "a\nb", "a}b", "日本", "# EOF", "", "a\rb")


class Families:
    """Samples as prometheus_client takes them."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._families: dict[str, ClientFamily] = {}
        for sample in samples:
            self._add(sample)

    def collect(self) -> Iterable[ClientFamily]:
        return self._families.values()

    def _add(self, sample: Sample) -> None:
        metric, value = sample.metric, sample.value
        kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        kind = kinds.get(metric.kind, HistogramMetricFamily)
        family = self._families.setdefault(
            metric.name, kind(metric.name, metric.help, labels=metric.labels)
        )
        if isinstance(value, HistogramValue):
            bounds = [*value.buckets, (math.inf, value.count)]
            buckets = [(floatToGoString(bound), count) for bound, count in bounds]
            family.add_metric(sample.labels, buckets, value.sum)
        else:
            family.add_metric(sample.labels, value)


def of_each_metric(number: float) -> list[Sample]:
    """Two series of every metric; those of families take turns, labels are odd."""
    return [
        Sample(
            metric,
            tuple(ODD[(place + turn) % len(ODD)] for place in range(len(metric.labels))),
            HISTOGRAM if metric.kind == "histogram" else number,
        )
        for turn in (0, 1)
        for metric in CATALOGUE
        if metric.labels or not turn
    ]


@pytest.mark.parametrize(("write", "reference"), FORMATS)
def test_each_metric_of_the_catalogue_is_written_as_prometheus_client_writes_it(write, reference):
    samples = of_each_metric(0.25)
    assert write(samples, SeriesLines()) == reference(Families(samples))


@pytest.mark.parametrize(("write", "reference"), FORMATS)
def test_help_with_quotes_backslashes_and_line_ends_is_escaped_as_each_format_asks(
    write, reference
):
    sample = Metric("a_total", "counter", 'one "two" \\ three\nfour').sample(1)
    assert write([sample], SeriesLines()) == reference(Families([sample]))


@pytest.mark.parametrize(
    "number",
    [
        0,
        -0.0,
        0.1,
        1e-9,
        999_999.5,
        1e6,
        123456789.5,
        1e15,
        9.9e15,
        1e16,
        1e300,
        -1e6,
        -3,
        math.inf,
        -math.inf,
        math.nan,
        True,
    ],
)
def test_numbers_are_written_as_prometheus_client_writes_them(number):
    assert number_text(number) == floatToGoString(number)


@given(st.floats() | st.integers(-(2**1000), 2**1000))
def test_any_number_is_written_as_prometheus_client_writes_it(number):
    assert number_text(number) == floatToGoString(number)


@pytest.mark.parametrize(("write", "reference"), FORMATS)
def test_pages_that_follow_one_another_have_the_values_of_their_own_moment(write, reference):
    known = SeriesLines()
    for number in (1.0, 1.0, 2.0, 1.0):
        samples = of_each_metric(number)
        assert write(samples, known) == reference(Families(samples))


def test_lines_of_series_that_are_gone_are_forgotten():
    known = SeriesLines()
    for job in range(20):
        write_text([training.STEPS.sample(1, job_id=f"job-{job}", rank="0")], known)
    assert list(known._kept) == [("rankscope_steps_total", ("job-19", "0"))]
    assert not known._used
