"""What a node's summary and the ratios over a restart are made of: at each threshold and beyond."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_agent.collecting.summary.links import LinkSummary
from rankscope_agent.collecting.summary.readings import Readings
from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.metrics import netdev, rdma
from rankscope_agent.contract.metrics import summary as metrics
from rankscope_agent.contract.model import Sample, Scrape
from rankscope_agent.sources.nccl_log.failures import SeenFailure
from rankscope_agent.sources.nccl_log.job_failures import JobFailures
from rankscope_agent.sources.training.restart_ratios import _usual

PORT = ("mlx5_0", "1")
RATE = 50e9
NOW = 1_760_000_000.0


def looked(summary, at, *samples):
    """Return what the summary says of these samples, by metric."""
    scrape = Scrape("rdma", True, 0.1, tuple(samples), "", None)
    return {one.metric: one.value for one in summary.samples(Readings([scrape]), at)}


def of_port(metric, value, *labels):
    return Sample(metric, (*PORT, *labels), value)


GROWING = {
    metrics.PORT_RECENT_ERRORS: (rdma.PORT_ERRORS, ("symbol_error",), 900.0),
    metrics.PORT_RECENT_RETRANSMISSIONS: (rdma.HW_EVENTS, ("out_of_sequence",), 900.0),
    metrics.PORT_RECENT_FLAPS: (rdma.LINK_FLAPS, (), 1800.0),
}


@pytest.mark.parametrize("shown", GROWING, ids=lambda one: one.name)
def test_what_a_port_counted_is_recent_for_a_quarter_or_half_of_an_hour(shown):
    metric, labels, window = GROWING[shown]
    summary = LinkSummary()
    looked(summary, 0.0, of_port(metric, 3.0, *labels))
    for at in (15.0, window, window + 10.0):
        found = looked(summary, at, of_port(metric, 7.0, *labels))
        assert found[shown] == pytest.approx(4.0, rel=0.02)  # its part of a window and a bit
    assert shown not in looked(summary, window + 20.0, of_port(metric, 7.0, *labels))


def busy(share, at=300.0):
    summary, rate = LinkSummary(), of_port(rdma.PORT_RATE, RATE)
    for now, sent in ((0.0, 0.0), (at, share * RATE * at)):
        found = looked(summary, now, rate, of_port(rdma.TRANSMIT_BYTES, sent))
    return found.get(metrics.PORT_BUSY)


def test_a_port_is_busy_that_carries_half_of_its_rate_over_five_minutes():
    assert busy(0.49) is None
    assert busy(0.51) == pytest.approx(0.51)
    assert busy(0.8, at=180.0) is None  # as much as 0.48 of five minutes


@pytest.mark.parametrize(("share", "paused"), [(0.009, None), (0.011, 0.011)])
def test_an_interface_is_paused_for_a_hundredth_of_the_time(share, paused):
    summary = LinkSummary()
    for now in (0.0, 300.0):
        seconds = Sample(netdev.PFC_SECONDS, ("eth0", "3", "receive"), share * now)
        found = looked(summary, now, seconds)
    assert found.get(metrics.NIC_PAUSED) == (paused and pytest.approx(paused))


def failures():
    return JobFailures(SimpleNamespace(view=None))


def failed(at, cause=causes.UNKNOWN):
    return SeenFailure(cause, 3, at, own=True)


@pytest.mark.parametrize(("apart", "attempts"), [(119.0, 1), (120.0, 2)])
def test_failures_within_two_minutes_are_of_one_attempt(apart, attempts):
    known = failures()
    known._take("job", failed(NOW), NOW)
    known._take("job", failed(NOW + apart), NOW)
    ((_, _, kept),) = known.state()
    assert len(kept) == attempts


def test_the_two_newest_attempts_of_a_job_are_reported():
    known = failures()
    for attempt in range(3):
        known._take("job", failed(NOW + 1000.0 * attempt), NOW)
    ((_, _, kept),) = known.state()
    assert [at for _, _, at, _ in kept] == [NOW + 1000.0, NOW + 2000.0]


@pytest.mark.parametrize(("earlier", "is_its_end"), [(60.0, True), (61.0, False)])
def test_a_container_may_have_ended_a_minute_before_its_words_by_other_clocks(earlier, is_its_end):
    told = []
    logs = SimpleNamespace(
        owner=SimpleNamespace(uid="uid"),
        progress=None,
        failures=SimpleNamespace(
            marked_at=NOW, has_news=False, settle=lambda *_, ended, alive: told.append(ended) or ()
        ),
    )
    pod = SimpleNamespace(ended=False, deleting=False)
    pods = SimpleNamespace(
        view=None,
        find=lambda uid: pod,
        training_job_of=lambda one: "job",
        newest_failure=lambda job: NOW - earlier,
    )
    JobFailures(pods).update([logs], (), NOW + 10.0)
    assert told == [is_its_end]


@pytest.mark.parametrize(("later", "jobs"), [(3599.0, 1), (3600.0, 0)])
def test_a_job_without_pods_is_reported_for_an_hour(later, jobs):
    known = failures()
    known._take("job", failed(NOW), NOW)
    known.update((), (), NOW + later)
    assert len(known.state()) == jobs


def test_the_64_jobs_that_failed_last_are_remembered():
    known = failures()
    for number in range(65):
        known._take(f"job-{number}", failed(NOW + number), NOW)
    known.update((), (), NOW)
    assert [job for job, _, _ in known.state()] == [f"job-{number}" for number in range(1, 65)]


@pytest.mark.parametrize(
    ("usual", "others", "samples"), [(15, 0, None), (16, 0, 8.0), (48, 16, 8.0), (47, 16, None)]
)
def test_most_of_sixteen_steps_or_more_have_the_usual_batch(usual, others, samples):
    assert _usual([8] * usual + list(range(100, 100 + others))) == samples
