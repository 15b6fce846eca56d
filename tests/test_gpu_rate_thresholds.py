"""Rates of GPU failures beside those that were published, and how Prometheus is asked for them."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope_analyzers.demo import hang
from rankscope_analyzers.gpus import error_sources
from rankscope_analyzers.gpus.failure_rates import rates
from rankscope_analyzers.intake.prometheus_api import Matrix
from rankscope_analyzers.numeric.arrays import distinct
from rankscope_analyzers.verification.report import EXIT_CODES

PUBLISHED = {
    "all unexpected interruptions": 419,
    "faulty GPU": 148,
    "GPU memory (HBM3 and SRAM)": 91,
    "GPU system processor": 17,
}
"""Table 5 of arXiv:2407.21783: 54 days of 16,384 GPUs are 21,233,664 GPU-hours."""


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_rates_stand_beside_the_published_ones(name, count):
    (rate,) = [one for one in rates((), None, 1e6) if one.name == name]
    assert rate.published_per_thousand_gpu_hours == pytest.approx(count / 21_233.664)
    assert rate.expected == pytest.approx(count / 21.233664)
    # None in a million hours: at most 3.689 with 95 % confidence (Garwood), per 1,000 hours.
    assert rate.high_per_thousand_gpu_hours == pytest.approx(3.6888795e-3)


class Server:
    """Answers each query of a range with as many watched GPUs as there are readings."""

    def __init__(self):
        self.grids = []

    def range(self, query, start, end, interval):
        times = np.arange(start, end + interval / 2, interval)
        self.grids.append((start, interval))
        if query.startswith("count("):
            return Matrix(({},), times, np.full((1, len(times)), 8.0))
        return Matrix((), times, np.empty((0, len(times))))


@pytest.mark.parametrize(
    ("seconds", "interval"),
    [(10.0, 10.0), (60.0, 15.0), (10_800.0, 15.0), (86_400.0, 120.0)],
)
def test_readings_are_asked_for_at_each_scrape_and_at_most_720_of_them(seconds, interval):
    server = Server()
    log = error_sources.from_prometheus(server, 1e9, 1e9 + seconds)
    assert {one for _, one in server.grids} == {interval}
    assert log.gpu_hours == pytest.approx(8 * seconds / 3600)


def test_the_demo_calls_a_job_hung_after_five_seconds(monkeypatch):
    asked = []

    def of_agents(urls, job, at, *, hang_after_seconds):
        asked.append(hang_after_seconds)
        raise LookupError

    monkeypatch.setattr(hang.gather, "of_agents", of_agents)
    with pytest.raises(LookupError):
        hang._hung("http://agent")
    assert asked == [5.0]


def test_a_verification_that_failed_ends_otherwise_than_one_that_knows_nothing():
    assert EXIT_CODES["PASS"] == 0
    assert EXIT_CODES["NOT YET"] == EXIT_CODES["CANNOT TELL"] != EXIT_CODES["FAIL"] == 2


@pytest.mark.parametrize("largest", [4, 8, 16, 1000])
def test_distinct_values_are_found_however_far_apart(largest):
    values, index = distinct(np.array([largest, 0, largest]))
    assert (values.tolist(), index.tolist()) == ([0, largest], [1, 0, 1])
