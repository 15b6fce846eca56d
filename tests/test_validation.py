"""What keeps a bad sample from making the page unreadable."""

from __future__ import annotations

import dataclasses
import math

import pytest

from rankscope_agent.collecting.validation import Validator
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import HistogramValue, Metric, Sample, Scrape

MAX_LABEL_BYTES = 1024

GOOD = metrics.RINGS.sample(3)


def ended(name: str, *samples: Sample) -> Scrape:
    return Scrape(name, True, 0.1, samples, "", 1.0)


def test_good_samples_pass_untouched():
    histogram = metrics.STEP_LATENCY.sample(
        HistogramValue(((0.1, 1), (1.0, 1)), 2, 5.0), job_id="a"
    )
    absent = metrics.LAST_STEP_SECONDS.sample(math.nan, job_id="a", rank="0")
    scrapes = (ended("one", GOOD, histogram), ended("two", absent))
    assert Validator().validate(scrapes) == scrapes


def test_of_two_equal_series_the_first_stays_and_the_other_is_counted():
    first = metrics.STEPS.sample(1, job_id="a", rank="0")
    second = metrics.STEPS.sample(2, job_id="a", rank="0")
    other = metrics.STEPS.sample(3, job_id="a", rank="1")
    (scrape,) = Validator().validate([ended("training", first, second, other)])
    assert scrape.samples == (first, other)
    assert (scrape.success, scrape.failure, scrape.invalid) == (True, "", 1)
    assert scrape.invalid_reason.startswith("1 of 3 samples dropped, first: rankscope_steps_total")


def test_a_series_belongs_to_the_first_collector_that_has_it():
    one, two = Validator().validate([ended("one", GOOD), ended("two", GOOD)])
    assert (one.samples, one.invalid) == ((GOOD,), 0)
    assert (two.samples, two.invalid) == ((), 1)


def test_a_dropped_sample_does_not_occupy_its_series():
    bad = metrics.STEPS.sample(-1, job_id="a", rank="0")
    good = metrics.STEPS.sample(1, job_id="a", rank="0")
    (scrape,) = Validator().validate([ended("training", bad, good)])
    assert scrape.samples == (good,)


GAUGE, COUNTER, HISTOGRAM = metrics.RINGS, metrics.RECORDS_CORRUPT, metrics.STEP_LATENCY


@pytest.mark.parametrize(
    ("sample", "complaint"),
    [
        (Sample(metrics.STEPS, ("a",), 1), "takes labels"),
        (Sample(metrics.STEPS, ("a", 0), 1), "label that is not text"),
        (Sample(metrics.STEPS, ["a", "0"], 1), "takes labels"),
        (Sample(metrics.STEPS, ("a\udc80", "0"), 1), "not UTF-8"),
        (Sample(metrics.STEPS, ("x" * (MAX_LABEL_BYTES + 1), "0"), 1), "more than"),
        (Sample(metrics.STEPS, ("ü" * (MAX_LABEL_BYTES // 2 + 1), "0"), 1), "more than"),
        (Sample(GAUGE, (), None), "got NoneType"),
        (Sample(GAUGE, (), "3"), "got str"),
        (Sample(GAUGE, (), 10**400), "got int"),
        (Sample(GAUGE, (), HistogramValue((), 0, 0.0)), "got a histogram"),
        (Sample(COUNTER, (), -1), "got -1"),
        (Sample(COUNTER, (), math.nan), "got nan"),
        (Sample(COUNTER, (), math.inf), "got inf"),
        (Sample(HISTOGRAM, ("a",), 1.0), "got float"),
        (
            Sample(HISTOGRAM, ("a",), HistogramValue(((1.0, 2), (2.0, 1)), 2, 0.0)),
            "counts that decrease",
        ),
        (Sample(HISTOGRAM, ("a",), HistogramValue(((1.0, 3),), 2, 0.0)), "counts that decrease"),
        (
            Sample(HISTOGRAM, ("a",), HistogramValue(((2.0, 1), (1.0, 1)), 2, 0.0)),
            "do not increase",
        ),
        (Sample(HISTOGRAM, ("a",), HistogramValue(((math.inf, 1),), 2, 0.0)), "do not increase"),
        (Sample(HISTOGRAM, ("a",), HistogramValue(((1.0, 1),), 2, None)), "not a number"),
        (Sample(Metric("9lives", "gauge", "x"), (), 1), "name that Prometheus"),
        (Sample(Metric("a", "gauge", "x", ("le",)), ("1",), 1), "labels that Prometheus"),
        (Sample(Metric("a", "gauge", "x", ("__name__",)), ("1",), 1), "labels that Prometheus"),
        (Sample(Metric("a", "counter", "x"), (), 1), "end in _total"),
        (Sample(Metric("a_total", "gauge", "x"), (), 1), "end in _total"),
        (Sample(Metric("a", "summary", "x"), (), 1), "unknown kind"),
        (Sample(None, (), 1), "expected a Sample of a Metric"),
        ("rankscope_steps_total 3", "expected a Sample of a Metric, got 'rankscope"),
    ],
)
def test_a_bad_sample_is_dropped_and_its_neighbours_stay(sample, complaint):
    neighbour = metrics.RINGS_REJECTED.sample(1, reason="magic")
    (scrape,) = Validator().validate([ended("training", sample, neighbour)])
    assert (scrape.success, scrape.invalid) == (True, 1)
    assert scrape.samples == (neighbour,)
    assert complaint in scrape.invalid_reason


def test_a_metric_declared_in_two_ways_keeps_its_first_declaration():
    changed = dataclasses.replace(metrics.RINGS, help="something else", labels=("reason",))
    (scrape,) = Validator().validate([ended("training", GOOD, Sample(changed, ("x",), 1))])
    assert scrape.samples == (GOOD,)
    assert "declared in two ways" in scrape.invalid_reason


def test_a_series_of_the_page_before_is_dropped_all_the_same_once_it_is_bad():
    validator, of_rank = Validator(), {"job_id": "a", "rank": "0"}
    good = metrics.STEPS.sample(1, **of_rank)
    assert validator.validate([ended("training", good)])[0].invalid == 0
    for bad, complaint in (
        (metrics.STEPS.sample(-1, **of_rank), "is a counter, got -1"),
        (metrics.STEPS.sample(2, **of_rank), "repeats the series"),
        (Sample(dataclasses.replace(metrics.STEPS, help=""), good.labels, 1), "in two ways"),
        (Sample(metrics.STEPS, (["a"], "0"), 1), "a label that is not text"),
    ):
        (scrape,) = validator.validate([ended("training", good, bad)])
        assert (scrape.samples, scrape.invalid) == ((good,), 1)
        assert complaint in scrape.invalid_reason
