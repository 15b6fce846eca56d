"""Jobs that stand still: when they are called hung, which ranks are named, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hanging_jobs import NOW, hung, page, reported, steps, training_page
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import PageHistory
from rankscope_analyzers.reports import job_json, job_summary
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from rankscope_analyzers.watch.series import WatchSeries
from simulated_jobs import Fault, Job, diagnosed, records


def test_a_job_without_steps_for_a_minute_is_hung_and_the_first_line_says_since_when():
    report = reported(training_page(70.0), judged=steps())
    (incident,) = report.incidents
    assert (incident.cause.kind, incident.where.ranks, incident.severity) == ("hang", (), "page")
    assert job_summary.headline(report) == (
        "no step since 2025-10-09 08:56:33 UTC (70 s ago), usual step 1.20 s."
    )
    assert incident.cost is not None
    assert incident.cost.lost_fraction == 1.0
    assert incident.cost.gpu_hours == pytest.approx(70.0 * 8 / 3600)
    verdict = job_json.as_object(report)["verdict"]
    assert (verdict["class"], verdict["lost_fraction"]) == ("hang", 1.0)
    assert verdict["summary"].startswith("no step since ")


def test_without_step_records_the_agents_sums_say_what_a_usual_step_is():
    report = reported(training_page(70.0))
    assert job_summary.headline(report) == (
        "no step since 2025-10-09 08:56:33 UTC (70 s ago), usual step 200.0 ms."
    )
    verdict = job_json.as_object(report)["verdict"]
    assert (verdict["class"], verdict["lost_fraction"]) == ("hang", 1.0)


@pytest.mark.parametrize("after", [5.0, 60.0, 300.0])
def test_the_least_time_is_the_users_choice(after):
    assert hung(training_page(after - 1), after=after) is None
    assert hung(training_page(after + 1), after=after) == ()


@pytest.mark.parametrize(("quiet", "called"), [(119.0, None), (121.0, ())])
def test_an_agent_that_does_not_tell_its_time_may_be_wrong_by_a_minute(quiet, called):
    assert hung(training_page(quiet, told=False, offset=0.0)) == called


def test_that_nothing_moves_is_as_good_as_sure():
    assert reported(training_page(70.0)).incidents[0].confidence == pytest.approx(0.9)


def test_a_stopped_rank_explains_a_hang_and_is_its_culprit_before_the_minute_is_over():
    report = reported(training_page(12.0, stopped=[0, 0, 1, 0]))
    (incident,) = report.incidents
    assert (incident.cause.kind, incident.where.ranks) == ("rank_stopped", (2,))
    said = job_summary.headline(report)
    assert said.startswith("no step since 2025-10-09 08:57:31 UTC (12 s ago), usual step 200.0 ms,")
    assert "because rank 2 (node n1) is stopped by a signal" in said
    assert job_json.as_object(report)["verdict"]["ranks"] == [2]


def test_a_rank_that_is_gone_explains_a_hang():
    pages = training_page(90.0, alive=[1, 1, 0, 1], ended=[None, None, 89.0, None])
    (incident,) = reported(pages).incidents
    assert (incident.cause.kind, incident.where.ranks) == ("missing_rank", (2,))
    assert incident.stands


def test_ranks_that_did_not_end_the_newest_step_are_whom_the_others_wait_for():
    report = reported(training_page(90.0, step=[41, 41, 40, 41]))
    assert report.incidents[0].where.ranks == (2,)
    assert "; rank 2 ended step 40, the others 41" in report.incidents[0].summary
    assert hung(training_page(90.0, step=[40, 40, 40, 41])) == ()  # three are no culprits
    assert hung(training_page(90.0, step=[41] * 4)) == ()


def test_a_hang_comes_before_faults_that_cost_more_so_far():
    slow = diagnosed(records(Job(faults=(Fault("compute", (3,), 0.6),))))
    report = reported(training_page(90.0), judged=slow)
    assert [one.stands for one in report.incidents] == [True, False]
    assert report.incidents[1].cause.kind == "gpu_compute"
    assert report.incidents[1].cost is not None


def test_the_time_from_the_last_step_to_the_look_that_finds_the_hang_is_lost():
    watch = WatchSeries()
    judged = steps()
    for now, quiet in ((NOW - 90.0, 5.0), (NOW - 60.0, 30.0), (NOW, 75.0), (NOW + 30.0, 105.0)):
        report = replace(reported(training_page(quiet), judged=judged), made_unix_seconds=now)
        assert watch.update([report], now) == ()
    watch.announce_sums()
    sums = {
        (sample.metric.name, *sample.labels): sample.value
        for sample in watch.samples()
        if "gpu_seconds" in sample.metric.name
    }
    ranks = 8
    lost = sums["rankscope_job_lost_gpu_seconds_total", "job", "hang"]
    seen = sums["rankscope_job_observed_gpu_seconds_total", "job"]
    assert seen == pytest.approx(ranks * 120.0)
    assert lost == pytest.approx(ranks * (75.0 + 30.0))


def test_a_watch_that_finds_a_hang_at_once_counts_no_time_that_it_did_not_see():
    watch = WatchSeries()
    for now in (NOW, NOW + 30.0):
        watch.update([reported(training_page(500.0))], now)
    watch.announce_sums()
    lost = [s.value for s in watch.samples() if s.metric.name.endswith("lost_gpu_seconds_total")]
    assert lost == [4 * 30.0]


def test_pages_of_a_node_that_answers_no_more_do_not_hide_a_hang():
    """The last page of a node that died shows steps that ended just before it was made."""
    history = PageHistory(job_reports.READS, 9)
    history.add([training_page(1.0, ranks=2, read=100.0, node="n2", first=2)])
    history.add([training_page(100.0, ranks=2)])
    evidence = JobEvidence(history.observed())
    (report,) = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
    assert [one.stands for one in report.incidents] == [True]


@pytest.mark.parametrize("size", [4, 6])
def test_a_job_that_goes_on_with_fewer_ranks_waits_for_none_that_ended_with_its_last_attempt(size):
    gone = {"alive": [0] * (size - 2), "ended": [320.0] * (size - 2), "last": [325.0] * (size - 2)}
    pages = page("n2", first=2, size=size, **gone), training_page(90.0, ranks=2, size=2)
    assert hung(*pages) == ()
    assert hung(pages[0], training_page(90.0, ranks=2, size=size)) == (
        (2, 3) if size == 4 else None
    )
