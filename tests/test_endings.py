"""Ranks that ended, were stopped or stand still, and what is said of a job that is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hanging_jobs import reported_with, standing
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.reports import job_json, job_summary
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from simulated_jobs import Job, diagnosed, records

NOW = 1_760_000_300.0
LAST = NOW - 20.0


def page(node="n1", first=0, **series):
    """Return a node's page: values by rank, of ranks `first`, ...; absent where None."""
    lines = []
    for name, values in series.items():
        for rank, value in enumerate(values, start=first):
            if value is not None:
                labels = f'job_id="job",rank="{rank}"'
                lines.append(f"rankscope_{name}{{{labels}}} {value}\n")
    count = max(map(len, series.values()))
    lines += [
        f'rankscope_rank_info{{job_id="job",rank="{rank}",node="{node}"}} 1\n'
        for rank in range(first, first + count)
    ]
    return Page(node, NOW, "".join(lines))


def ranks(alive, **more):
    """Return a page of ranks that ended their last step 20 s ago, of 0.2 s."""
    known = {
        "rank_alive": alive,
        "last_step_timestamp_seconds": [LAST] * len(alive),
        "last_step_seconds": [0.2] * len(alive),
    }
    return page(**known | more)


def reported(*pages, judged=False):
    """Return the report; `judged` adds steps in which nobody is slow."""
    timing = TimingResults((diagnosed(records(Job(ranks=4))),) if judged else (), {}, ())
    (report,) = job_reports.reports(timing, JobEvidence(from_pages(pages, job_reports.READS)), NOW)
    return report


def incidents(*pages):
    return [(one.cause.kind, one.where.ranks) for one in reported(*pages).incidents]


def observed(*pages):
    report = reported(*pages)
    assert report.incidents == ()
    return [(one.kind, one.where.ranks) for one in report.observations]


def ended(*seconds):
    return {"rank_ended_timestamp_seconds": [None if s is None else NOW - 20 + s for s in seconds]}


def test_ranks_that_ended_while_others_live_are_missing_since_their_end():
    report = reported(ranks([1, 0, 1, 1], **ended(None, 3.5, None, None)))
    (incident,) = report.incidents
    assert (incident.cause.kind, incident.where.ranks) == ("missing_rank", (1,))
    assert incident.since_unix_seconds == NOW - 16.5


def sized(page, size):
    """Return a page whose ranks name a world size."""
    return replace(page, body=page.text.replace(',node="', f',world_size="{size}",node="'))


DONE = [1, *[0] * 7]
"""The states of ranks of which only rank 0 goes on."""


def done(*, after=(), stood=20.0, stepped=0.0):
    """Return a page of such ranks that ended so long ago; rank 0 made its last step later."""
    later = [*after, *[0.1] * (7 - len(after))]
    times = [None, *(NOW - stood + one for one in later)]
    steps = {"last_step_timestamp_seconds": [NOW - stood + stepped, *[NOW - stood] * 7]}
    return ranks(DONE, rank_ended_timestamp_seconds=times, **steps)


def test_ranks_that_are_done_while_one_saves_are_no_incident():
    report = reported(done(after=(0.2, 0.4)))
    (ending,) = report.observations
    assert (report.incidents, ending.kind) == ((), "job_ending")
    assert ending.where.ranks == (*range(1, 8),)
    assert ending.summary.endswith(
        "ranks 1-7 (node n1) ended together at 2025-10-09 08:58:00 UTC, rank 0 goes on and may"
        " save or evaluate"
    )


@pytest.mark.parametrize(
    "page",
    [
        done(after=(0.1, 60.0), stood=90.0),
        done(stood=299.0),
        done(stood=90.0, stepped=60.0),
        sized(done(), 8),
    ],
)
def test_ranks_that_are_done_end_within_a_minute_and_the_rest_has_five(page):
    assert observed(page) == [("job_ending", (*range(1, 8),))]


SAVES = 'rankscope_span_began_timestamp_seconds{job_id="job",rank="0",kind="checkpoint_save"}'


def resting(stood, *, span="", **stall):
    """Return what is said of ranks done so long ago while rank 0 is in no collective."""
    (rests,) = [replace(one, **stall) for one in standing(0)["job"] if one.rank == 0]
    page = done(stood=stood)
    page = replace(page, body=page.text + (span and f"{span} {NOW - stood}\n"))
    report = reported_with({"job": [rests]}, page)
    return [one.kind for one in (*report.observations, *(i.cause for i in report.incidents))]


@pytest.mark.parametrize(
    "known", [{}, {"recorder": "off", "span": SAVES}], ids=["no collective", "a save"]
)
def test_if_it_is_seen_what_the_rest_does_it_has_half_an_hour(known):
    assert resting(1799.0, **known) == ["job_ending"]
    assert resting(1801.0, **known) == ["missing_rank"]


def test_a_rest_whose_collectives_are_unknown_may_wait_in_one():
    assert resting(299.0, recorder="off") == ["job_ending"]
    assert resting(301.0, recorder="off") == ["missing_rank"]


@pytest.mark.parametrize(
    "page",
    [
        ranks([0, *[1] * 7], **ended(0.1)),
        ranks([0] * 4 + [1] * 4, **ended(*[0.1] * 4)),
        done(after=(0.1, 61.0), stood=90.0),
        done(stood=301.0),
        done(stood=90.0, stepped=61.0),
        sized(done(), 16),
        ranks(DONE),
    ],
    ids=[
        "one of them",
        "half of them",
        "first one, then the rest",
        "minutes ago",
        "rank 0 trains on",
        "the others are unseen",
        "nobody saw when",
    ],
)
def test_ranks_whose_end_is_not_that_of_the_job_are_missing(page):
    assert [kind for kind, _ in incidents(page)] == ["missing_rank"]


def test_a_rank_that_waits_in_a_collective_of_all_misses_those_that_are_done():
    (waits,) = [one for one in standing(3)["job"] if one.rank == 0]
    evidence = JobEvidence(from_pages([done()], job_reports.READS), stalls={"job": (waits,)})
    (report,) = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
    assert [one.cause.kind for one in report.incidents] == ["missing_rank"]


def test_of_a_job_that_is_over_the_rank_that_ended_first_is_told_and_when_and_no_incident_is_made():
    report = reported(ranks([0] * 4, **ended(0.9, 0.4, 0.92, 0.95)), judged=True)
    assert report.incidents == ()
    (over,) = report.observations
    assert (over.kind, over.where.ranks, over.since_unix_seconds) == (
        "rank_ended",
        (1,),
        NOW - 19.6,
    )
    said = job_summary.headline(report)
    assert said == (
        "The job is over: rank 1 (node n1) ended first, at 2025-10-09 08:58:00 UTC, 500.0 ms before"
        " the others. Until then: no straggler: no rank delays the others."
    )
    verdict = job_json.as_object(report)["verdict"]
    assert (verdict["summary"], verdict["class"], verdict["cause"]) == (said, None, None)


@pytest.mark.parametrize(
    ("times", "kind", "first"),
    [
        ((0.9, 0.9, 0.92, 0.93), "job_over", ()),
        ((0.4, 0.42, 0.9, 0.91), "rank_ended", (0, 1)),
        ((0.4, 0.41, 0.42, 9.0), "job_over", ()),  # one that writes the model at the end
        ((0.4, 0.9), "rank_ended", (0,)),
    ],
)
def test_at_most_half_of_the_ranks_are_called_the_first_and_only_if_they_were_clearly(
    times, kind, first
):
    assert observed(ranks([0] * len(times), **ended(*times))) == [(kind, first)]


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ((0.453, 0.451, 0.42, 0.47), "ended within 50.0 ms, rank 2 before the others, at "),
        ((0.42, 0.45, 0.42, 0.47), "ended within 50.0 ms, at "),  # noticed in one look
        ((0.4, 0.41, 0.42, 9.0), "ended within 8.60 s, at "),
    ],
)
def test_who_ended_before_the_others_by_a_little_is_told_and_nobody_is_blamed(times, said):
    report = reported(ranks([0] * 4, **ended(*times)), judged=True)
    (over,) = report.observations
    assert (over.kind, over.where.ranks) == ("job_over", ())
    assert f"its ranks {said}" in job_summary.headline(report)


def test_of_ranks_on_several_nodes_clocks_do_not_tell_the_order():
    kinds = {"rank_alive": [0, 0]}
    pages = (page("n1", 0, **kinds, **ended(0.4, 0.42)), page("n2", 2, **kinds, **ended(0.5, 0.6)))
    assert "before the others" not in job_summary.headline(reported(*pages, judged=True))


def test_where_nobody_saw_a_rank_end_nothing_is_said_of_the_order():
    page_of_newer_agent = ranks([0] * 4, **ended(0.4, None, 0.9, None))
    assert observed(page_of_newer_agent) == [("job_over", ())]
    assert job_summary.headline(reported(page_of_newer_agent, judged=True)).startswith(
        "The job is over: all its processes have ended, its last step ended at 2025-10-09 08:57:"
    )


def test_between_nodes_whose_clocks_differ_a_first_rank_must_be_further_ahead():
    def two(first, later):
        kinds = {"rank_alive": [0, 0]}
        return (
            page("n1", 0, **kinds, **ended(first, first + 0.01)),
            page("n2", 2, **kinds, **ended(later, later + 0.01)),
        )

    assert observed(*two(0.4, 0.9)) == [("job_over", ())]
    assert observed(*two(0.4, 1.9)) == [("rank_ended", (0, 1))]


def test_a_stopped_rank_is_an_incident_since_its_last_step():
    report = reported(ranks([1] * 4, rank_stopped=[0, 0, 0, 1]))
    (incident,) = report.incidents
    assert (incident.cause.kind, incident.where.ranks) == ("rank_stopped", (3,))
    assert incident.since_unix_seconds == LAST
    assert "stopped by a signal or a debugger" in incident.summary


def test_a_rank_that_a_debugger_holds_for_a_moment_is_not_called_stopped():
    recent = {"last_step_timestamp_seconds": [NOW - 0.3] * 2}
    assert incidents(ranks([1, 1], rank_stopped=[0, 1], **recent)) == []
    slow = {"last_step_seconds": [3.0] * 2}
    assert incidents(ranks([1, 1], rank_stopped=[0, 1], **slow)) == []


def test_a_rank_that_was_stopped_is_whom_all_waited_for():
    rows = records(Job(ranks=4, compute=0.02, data=0.002, transfer=0.004, steps=900))
    rows.loc[rows["step"] == 700, ["sync_seconds", "step_seconds"]] += 8.0
    starts = rows.groupby("step")["step_seconds"].max().cumsum().shift(fill_value=0.0)
    rows["t_start_unix_seconds"] = 1_760_000_000.0 + starts.loc[rows["step"]].to_numpy()
    judged = diagnosed(rows.assign(timing_source="wall", other_seconds=0.0002))
    (frozen,) = (judged.verdict.cause,)
    assert frozen.where.ranks == ()
    stopped = {"rank_last_stopped_timestamp_seconds": [None, frozen.since_unix_seconds + 4, None]}
    pages = [ranks([1] * 4, rank_stopped=[0] * 4, **stopped)]
    evidence = JobEvidence(from_pages(pages, job_reports.READS))
    (report,) = job_reports.reports(TimingResults((judged,), {}, ()), evidence, NOW)
    (incident,) = report.incidents
    assert (incident.cause.kind, incident.where.ranks) == ("rank_was_stopped", (1,))
    assert "because rank 1 (node n1) was stopped by a signal" in incident.summary
    assert observed(*pages) == [("rank_was_stopped", (1,))]


def test_what_the_kernel_says_of_the_end_is_its_cause():
    uid = 'pod_uid="u",pod_namespace="ml",pod_name="a"'
    kill = 'rankscope_kernel_pod_last_event_timestamp_seconds{kind="oom_kill",scope="cgroup",'
    over = ranks([0, 0], **ended(0.1, 0.6))
    told = over.text.replace('node="n1"', f'node="n1",{uid}')
    told += f'{kill}pod_uid="u"}} {NOW - 21}\n'
    assert incidents(Page("n1", NOW, told)) == [("oom_kill", (0, 1))]


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
def test_ranks_that_go_on_elsewhere_are_not_lost(nodes):
    """Their first processes ended with the job's first attempt; agents report that for minutes."""
    old, new = nodes
    before = ranks([None, None, 0, 0], last_step_timestamp_seconds=[LAST - 200.0] * 4)
    pages = [replace(before, node=old), replace(ranks([1, 1, 1, 1]), node=new)]
    assert incidents(*sorted(pages, key=lambda one: one.node)) == []


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
@pytest.mark.parametrize(
    ("size", "said"),
    [(2, []), (4, [("missing_rank", (2, 3))]), ("", [("missing_rank", (2, 3))])],
    ids=["smaller", "the same", "unknown"],
)
def test_ranks_beyond_the_size_of_those_that_go_on_are_an_earlier_attempts(nodes, size, said):
    """The job was started again on another node, with half of its ranks or before two came up."""
    old, new = nodes
    before = ranks([0] * 4, last_step_timestamp_seconds=[LAST - 200.0] * 4)
    pages = [replace(sized(before, 4), node=old), replace(sized(ranks([1, 1]), size), node=new)]
    assert incidents(*sorted(pages, key=lambda one: one.node)) == said


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
def test_a_rank_is_lost_where_it_was_last(nodes):
    """Ended processes of an earlier attempt are no sign of life, nor of when the last one ended."""
    old, new = nodes
    before = ranks([0, 0], last_step_timestamp_seconds=[LAST - 200.0] * 2)
    pages = [replace(before, node=old), replace(ranks([1, 0]), node=new)]
    (incident,) = reported(*sorted(pages, key=lambda one: one.node)).incidents
    assert (incident.cause.kind, incident.where.ranks) == ("missing_rank", (1,))
    assert (incident.where.nodes, incident.since_unix_seconds) == ((new,), LAST)


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
def test_a_node_that_reports_no_more_has_no_rank(nodes):
    """It was lost while its processes lived: the ranks were started again elsewhere, and ended."""
    old, new = nodes
    stale = replace(ranks([1, 1], last_step_timestamp_seconds=[LAST - 200.0] * 2), time=NOW - 190.0)
    pages = [replace(stale, node=old), replace(ranks([1, 0]), node=new)]
    (incident,) = reported(*sorted(pages, key=lambda one: one.node)).incidents
    assert (incident.where.ranks, incident.where.nodes) == ((1,), (new,))
