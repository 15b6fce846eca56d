"""What the watch tells of an incident from beginning to end; how reports tell what is over."""

from dataclasses import replace
from functools import cache

import pytest
from rich.console import Console

from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.reports import html, job_json, markdown, terminal
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.watch.incident_history import IncidentHistory
from rankscope_analyzers.watch.series import WatchSeries
from suite_jobs import fault, made

LIVES_OF_A_JOB = 32
MOST_JOBS = 4096
REMEMBERED_SECONDS = 86400.0

RECOVERED = "rankscope_finding_recovered_timestamp_seconds"


@cache
def reported(**changes):
    simulated = made(fault("gpu_compute", "gpu", 1.5, first=60, **changes), tensor=1, pipeline=1)
    job = JobRecords("ns/job", simulated.records, None, (), live=True)
    (report,) = job_reports.reports(diagnose_each([job]), JobEvidence(), 2e9)
    return report


@pytest.fixture(scope="module")
def slow():
    return reported(last=220)


@pytest.fixture(scope="module")
def past():
    return reported(last=140)


@pytest.fixture(scope="module")
def healthy(slow):
    return replace(slow, incidents=())


def on(report, rank):
    """Return a report that blames another rank."""
    first = report.incidents[0]
    return replace(report, incidents=(replace(first, where=replace(first.where, ranks=(rank,))),))


def changes(*reports, lives=None):
    """Return what changed at each of some looks, a minute apart."""
    known = IncidentHistory() if lives is None else lives
    return [
        [event.change for event in known.update(report, 1000.0 + 60.0 * look)] if report else []
        for look, report in enumerate(reports)
    ]


def test_an_incident_opens_once_and_goes_on(slow):
    assert changes(slow, slow, slow) == [["opened"], [], []]


def test_an_incident_that_ended_is_over_since_it_was_seen_last_and_comes_back(slow, past):
    lives = IncidentHistory()
    assert changes(slow, past, past, slow, lives=lives) == [["opened"], ["over"], [], ["back"]]
    assert list(lives.recovered()) == []


def test_one_that_is_seen_no_more_is_over_by_the_time_of_the_look(slow, healthy):
    lives = IncidentHistory()
    assert changes(slow, healthy, lives=lives) == [["opened"], ["over"]]
    assert list(lives.recovered()) == [("ns/job", "gpu_compute", 1060.0)]


def test_the_end_is_when_the_last_slow_step_was(slow, past):
    lives = IncidentHistory()
    changes(slow, past, lives=lives)
    until = past.incidents[0].until_unix_seconds
    assert list(lives.recovered()) == [("ns/job", "gpu_compute", until)]


def test_another_culprit_of_the_same_fault_is_a_change_and_no_new_incident(slow):
    assert changes(slow, on(slow, 4), on(slow, 4)) == [["opened"], ["culprit changed"], []]


def test_a_cause_that_is_found_later_is_a_change_and_no_new_incident(slow):
    first = slow.incidents[0]
    explained = replace(first, cause=replace(first.cause, kind="thermal_slowdown"))
    lives = IncidentHistory()
    told = changes(slow, replace(slow, incidents=(explained,)), slow, lives=lives)
    assert told == [["opened"], ["cause changed"], ["cause changed"]]
    assert list(lives.recovered()) == []


@pytest.mark.parametrize(
    "blind",
    [
        lambda report: replace(report, incidents=(), missing=("its agents do not answer",)),
        lambda report: replace(report, incidents=(), verdict=None),
        lambda report: replace(report, incidents=(), verdict=replace(report.verdict, confidence=0)),
        lambda report: None,
    ],
)
def test_a_look_that_could_not_see_the_job_ends_nothing(slow, blind):
    assert changes(slow, blind(slow), slow) == [["opened"], [], []]


def test_an_incident_that_was_over_for_a_day_is_another_one_when_it_begins_again(slow, healthy):
    lives = IncidentHistory()
    changes(slow, healthy, lives=lives)
    later = 1060.0 + REMEMBERED_SECONDS
    lives.update(healthy, later)
    assert list(lives.recovered()) == []
    assert [event.change for event in lives.update(slow, later + 60.0)] == ["opened"]


def of_kind(report, kind, *ranks):
    """Return a report in which step times show another class of fault."""
    first = report.incidents[0]
    timing = replace(first.timing, kind=kind)
    other = replace(first, cause=timing, timing=timing, where=replace(first.where, ranks=ranks))
    return replace(report, incidents=(other,))


def test_a_rank_that_is_slow_in_another_way_has_not_recovered(slow):
    ranks = slow.incidents[0].where.ranks
    for kind, where, why in (
        ("data_loader", ranks, "over, recognized as gpu_compute at 1970-01-01 00:17:40 UTC: "),
        ("data_loader", (4,), "over, recovered at 1970-01-01 00:17:40 UTC: "),
    ):
        lives = IncidentHistory()
        lives.update(of_kind(slow, kind, *where), 1000.0)
        opened, over = lives.update(slow, 1060.0)
        assert (opened.change, over.change) == ("opened", "over")
        assert over.sentence.startswith(why)


def test_an_end_beside_a_fault_that_goes_on_is_a_recovery(slow):
    first = slow.incidents[0]
    (other,) = of_kind(slow, "data_loader", *first.where.ranks).incidents
    lives = IncidentHistory()
    lives.update(replace(slow, incidents=(first, other)), 1000.0)
    (over,) = lives.update(slow, 1060.0)
    assert over.sentence.startswith("over, recovered at ")


def test_what_is_remembered_stays_bounded(slow):
    lives, first = IncidentHistory(), slow.incidents[0]
    for number in range(4 * LIVES_OF_A_JOB):
        timing = replace(first.timing, kind=f"kind-{number}")
        lives.update(replace(slow, incidents=(replace(first, timing=timing),)), 1000.0)
    assert len(lives._jobs["ns/job"]) == LIVES_OF_A_JOB
    for number in range(MOST_JOBS + 10):
        lives.update(replace(slow, job_id=f"job-{number}"), 1000.0)
    lives.trim()
    assert len(lives._jobs) == MOST_JOBS


def exported(watch):
    return {
        sample.labels: sample.value for sample in watch.samples() if sample.metric.name == RECOVERED
    }


def test_the_end_of_an_incident_is_exported_while_its_job_is_seen(slow, past):
    watch, until = WatchSeries(), past.incidents[0].until_unix_seconds
    watch.update([slow], 1000.0)
    assert exported(watch) == {}
    watch.update([past], 1030.0)
    assert exported(watch) == {("ns/job", "gpu_compute"): until}
    (event,) = watch.events
    assert event.sentence.startswith("over, recovered at 2025-10-09 09:0")
    watch.update([past], 1060.0)
    assert watch.events == ()
    watch.update([], 1090.0)
    assert exported(watch) == {}
    watch.update([slow], 1120.0)
    assert exported(watch) == {}


def text(report):
    console = Console(no_color=True, width=200)
    with console.capture() as shown:
        terminal.show(console, [report])
    return shown.get()


def test_reports_tell_what_is_over_as_past(slow, past):
    sentence = text(past)
    assert "gpu_compute: over, recovered at 2025-10-09" in sentence
    assert "while it lasted" in sentence
    assert "so far" not in sentence
    assert "recovered" not in text(slow)
    for shown in (markdown.write([past]), html.write([past])):
        assert "over, recovered at 2025-10-09" in shown
    assert job_json.as_object(past)["verdict"]["until_unix_seconds"] is not None
