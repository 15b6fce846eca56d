"""What becomes of a collector's run, whatever it raises."""

from __future__ import annotations

import itertools
import logging
import time

from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.collector import NoData, scrape

MAX_FAILURE_CHARACTERS = 500
MAX_SAMPLES = 200_000

SAMPLE = metrics.RINGS.sample(3)


class Working:
    def collect(self):
        yield SAMPLE


class WithoutSource:
    def collect(self):
        raise NoData("/run/rankscope does not exist")


class BrokenHalfWay:
    def collect(self):
        yield SAMPLE
        raise ZeroDivisionError("no samples")


class Endless:
    def collect(self):
        return itertools.repeat(SAMPLE)


def test_a_run_that_ends_is_a_success_with_its_samples():
    before = time.time()
    result = scrape("training", Working(), None)
    assert result.success
    assert result.samples == (SAMPLE,)
    assert result.failure == ""
    assert result.last_success_unix_seconds >= before


def test_an_absent_source_is_reported_with_its_reason_and_is_no_error(caplog):
    with caplog.at_level(logging.INFO):
        result = scrape("training", WithoutSource(), 5.0)
    assert not result.success
    assert result.failure == "no data: /run/rankscope does not exist"
    assert result.last_success_unix_seconds == 5.0
    assert caplog.records == []


def test_a_raise_half_way_drops_the_values_read_before_it(caplog):
    result = scrape("training", BrokenHalfWay(), 5.0)
    assert not result.success
    assert result.samples == ()
    assert result.failure == "ZeroDivisionError: no samples"
    assert result.last_success_unix_seconds == 5.0
    (record,) = caplog.records
    assert record.exc_info is not None
    assert (record.collector, record.failure) == ("training", result.failure)


def test_an_error_that_quotes_its_input_stays_short():
    class Quoting:
        def collect(self):
            raise ValueError("x" * 100_000)

    class Absent:
        def collect(self):
            raise NoData("x" * 100_000)

    assert len(scrape("training", Quoting(), None).failure) == MAX_FAILURE_CHARACTERS
    assert len(scrape("training", Absent(), None).failure) == MAX_FAILURE_CHARACTERS


def test_a_collector_without_end_is_cut_off():
    result = scrape("training", Endless(), None)
    assert not result.success
    assert result.samples == ()
    assert f"more than {MAX_SAMPLES} samples" in result.failure
