"""Jobs that take no first step, or none after a restart: how long they have until they are hung."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hanging_jobs import NOW, hung, page, reported, reported_with, standing, training_page
from rankscope_agent.contract.model import FLAG_FIRST
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import from_pages
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from simulated_jobs import Job, records


@pytest.mark.parametrize(("started", "called"), [(59.0, None), (61.0, ())])
def test_a_program_has_a_minute_to_be_loaded_however_impatient_the_user_is(started, called):
    assert hung(page(started=[started] * 4), after=2.0) == called


def test_processes_that_take_no_first_step_are_hung_after_ten_minutes_and_absent_ranks_are_named():
    assert hung(page(started=[599.0, 900.0])) is None
    report = reported(page(started=[610.0, 900.0, None, 800.0]))
    (incident,) = report.incidents
    assert (incident.cause.kind, incident.where.ranks, incident.confidence) == ("hang", (2,), 0.7)
    assert incident.summary == (
        "no step since the processes of ranks 0, 1, 3 were started at 2025-10-09 08:47:33 UTC"
        " (10 min ago), usual step unknown; no process with the probe is seen of rank 2"
    )


def test_a_job_that_does_not_come_back_from_a_restart_is_hung_and_not_over():
    pages = page(alive=[0] * 4, ended=[950.0] * 4, steps=[500] * 4, started=[900.0] * 4)
    report = reported(pages)
    assert [one.cause.kind for one in report.incidents] == ["hang"]
    assert report.observations == ()
    second = page(alive=[1] * 4, steps=[500] * 4, started=[900.0] * 4)
    assert hung(second) == ()


@pytest.mark.parametrize(
    ("took", "waited", "called"),
    [(400.0, 790.0, False), (400.0, 810.0, True), (10.0, 590.0, False), (10.0, 610.0, True)],
)
def test_a_first_step_may_take_twice_as_long_as_the_jobs_first_steps_did(took, waited, called):
    rows = records(Job())
    first = rows["step"] == rows["step"].min()
    rows.loc[first, "flags"], rows.loc[first, "step_seconds"] = FLAG_FIRST, took
    older, newest = rows[first], rows[~first]
    job = JobRecords("job", newest, None, (), live=True, start=older)
    followed = FollowedJobs()
    diagnose_each([job], followed)
    later = diagnose_each([replace(job, start=None)], followed)
    for timing in (diagnose_each([job]), later):
        again = page(alive=[0] * 4, ended=[950.0] * 4, steps=[9] * 4, started=[waited] * 4)
        evidence = JobEvidence(from_pages([again], job_reports.READS))
        (report,) = job_reports.reports(timing, evidence, NOW)
        assert any(one.stands for one in report.incidents) is called


@pytest.mark.parametrize("stepped", [True, False])
def test_processes_that_are_started_as_others_end_are_a_restart(stepped):
    """Launchers start them before agents have noticed the end, and boot is told in seconds."""
    more = {"last": [903.0] * 4} if stepped else {}
    pages = page(alive=[0] * 4, ended=[900.0] * 4, steps=[60] * 4, started=[901.5] * 4, **more)
    report = reported(pages)
    assert [one.cause.kind for one in report.incidents] == ["hang"]
    assert report.observations == ()
    # Processes that are slow to end after their last step are none.
    more = {"last": [903.0] * 4} if stepped else {}
    pages = page(alive=[0] * 4, ended=[900.0] * 4, steps=[60] * 4, started=[905.0] * 4, **more)
    assert hung(pages) is None
    assert [one.kind for one in reported(pages).observations] == ["job_over"]


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize(("waited", "called"), [(250.0, False), (650.0, True)])
def test_a_job_that_is_started_again_on_another_node_is_given_the_time_to_start(
    nodes, ring, waited, called
):
    """The steps of the processes that ended on the first node are not those of its new ones."""
    before = training_page(801.0, alive=[0] * 4, ended=[800.0] * 4)
    after = page(started=[waited] * 4, **({"alive": [1] * 4} if ring else {}))
    pages = [replace(one, node=node) for one, node in zip((before, after), nodes, strict=True)]
    assert (hung(*sorted(pages, key=lambda one: one.node)) is not None) is called


@pytest.mark.parametrize(("age", "called"), [(590.0, False), (610.0, True)])
def test_ranks_that_wait_in_a_collective_before_a_first_step_are_hung_after_ten_minutes(
    age, called
):
    pages = [page(alive=[1] * 4, steps=[0] * 4)]
    report = reported_with(standing(1, age=age, stepped=False), *pages)
    assert [one.where.ranks for one in report.incidents if one.stands] == [(1,)] * called


@pytest.mark.parametrize(("waited", "called"), [(59.0, False), (61.0, True)])
def test_programs_have_a_minute_to_be_loaded_whatever_is_asked(waited, called):
    loading = page(alive=[0] * 4, started=[waited] * 4)
    assert (hung(loading, after=1.0) is not None) is called


def test_ranks_that_have_joined_and_wait_for_nobody_are_not_hung():
    calm = {"job": [replace(one, groups=()) for one in standing(1)["job"]]}
    report = reported_with(calm, page(alive=[1] * 4, started=[5000.0] * 4))
    assert [one for one in report.incidents if one.stands] == []
