"""Pauses that are no hang: those of every healthy job, of marked spans, and of ranks at work."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hanging_jobs import NOW, OFFSET, hung, page, reported_with, standing, steps, training_page
from rankscope_agent.contract.flight_dump import Frame
from rankscope_agent.contract.metrics import training
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import PageHistory, from_pages
from rankscope_analyzers.layers import hang
from rankscope_analyzers.layers.job_view import job_view
from rankscope_analyzers.layers.pace import OpenSpan, Pace, pace_of_frame
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from simulated_jobs import Job, diagnosed, records


def stands(stalls, *, quiet=90.0):
    report = reported_with(stalls, training_page(quiet))
    return [one.where.ranks for one in report.incidents if one.stands]


def changed(late, **fields):
    """Return where ranks stand, of which the late one has these fields."""
    return {
        "job": [
            replace(one, **fields) if one.rank == late else one
            for one in standing(late, age=89.0)["job"]
        ]
    }


def test_a_rank_that_works_while_the_others_wait_for_it_has_ten_times_as_long():
    assert stands(changed(2, cpu_share=0.01)) == [(2,)]
    assert stands(changed(2, cpu_share=None)) == [(2,)]
    assert stands(changed(2, cpu_share=0.9)) == []
    late = {"job": [replace(one, cpu_share=0.9) for one in standing(2, age=650.0)["job"]]}
    assert stands(late, quiet=651.0) == [(2,)]


def test_a_pause_that_is_no_hang_yet_is_reported_all_the_same():
    report = reported_with(changed(2, cpu_share=0.9), training_page(90.0))
    (pause,) = [one for one in report.observations if one.kind == "long_pause"]
    assert (report.incidents, pause.where.ranks) == ((), ())
    assert re.match(r"no step since .* \(90 s ago\), usual step .*; ", pause.summary)
    assert "rank 2" in pause.summary
    assert pause.summary.endswith("; no hang so far, as a rank is at work")


def test_what_ranks_use_that_wait_in_a_collective_is_no_work():
    """A thread that waits for a GPU takes a whole core."""
    spinning = [replace(one, cpu_share=0.0 if one.rank == 2 else 1.0) for one in standing(2)["job"]]
    assert stands({"job": spinning}) == [(2,)]


def test_ranks_of_which_none_is_in_a_collective_and_one_works_are_not_hung():
    calm = [replace(one, groups=(), cpu_share=0.0) for one in standing(2)["job"]]
    assert stands({"job": calm}) == [()]
    assert stands({"job": [*calm[:3], replace(calm[3], cpu_share=0.8)]}) == []


@pytest.mark.parametrize(("state", "called"), [("S", []), ("D", [(2,)])])
def test_a_rank_that_saves_without_a_mark_has_more_time_unless_its_storage_holds_it(state, called):
    saving = (Frame("save_file", "/x/site-packages/safetensors/torch.py", 300),)
    assert stands(changed(2, stack=saving, cpu_share=0.0, state=state)) == called


def test_after_a_span_the_time_counts_from_its_end():
    def ended(ago):
        return changed(2, span_ended_unix_seconds=NOW + OFFSET - ago)

    assert stands(ended(20.0)) == []
    assert stands(ended(80.0)) == [(2,)]


@pytest.mark.parametrize(("seen", "called"), [(20.0, False), (70.0, True)])
def test_without_such_agents_it_counts_from_when_the_span_was_last_seen(seen, called):
    history = PageHistory(job_reports.READS, 9)
    labels = '{job_id="job",rank="0",kind="evaluation"}'
    whole = training_page(100.0 - seen, read=seen)
    history.add(
        [replace(whole, body=f"{whole.text}{training.SPAN_BEGAN.name}{labels} {NOW - 99}\n")]
    )
    history.add([training_page(100.0)])
    evidence = JobEvidence(history.observed())
    (report,) = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
    assert any(one.stands for one in report.incidents) is called


def test_the_first_step_of_an_attempt_does_not_make_a_job_patient():
    rows = records(Job())
    rows.loc[rows["step"] == rows["step"].min(), ["sync_seconds", "step_seconds"]] += 300.0
    pace = pace_of_frame(diagnosed(rows).frame)
    assert pace is not None
    assert pace.longest < 10.0


HEALTHY = {
    "between two steps": [training_page(3.0)],
    "a pause of a minute less a second": [training_page(59.0)],
    "ended as it should": [training_page(900.0, alive=[0] * 4, ended=[900.0] * 4)],
    "ended with a rank that writes the model at the end": [
        training_page(900.0, alive=[1, 0, 0, 0], ended=[None, 900.0, 900.0, 900.0])
    ],
    "scaled to 0: its series are gone from newer pages": [
        training_page(3.0, read=600.0),
        page("n1", stopped=[0]),
    ],
    "its agents gave no answer for ten minutes": [training_page(3.0, read=600.0)],
    "one agent gave no answer for ten minutes": [
        training_page(2.0, ranks=2),
        training_page(2.0, ranks=2, node="n2", first=2, read=600.0),
    ],
    "the agent's clock is three minutes ahead": [training_page(3.0, offset=180.0)],
    "the agent's clock is three minutes behind": [training_page(3.0, offset=-180.0)],
    "the agent does not tell its time, and clocks differ": [
        training_page(65.0, told=False, offset=0.0)
    ],
    "the clocks of two nodes are a minute apart": [
        training_page(3.0, ranks=2, offset=30.0),
        training_page(3.0, ranks=2, node="n2", first=2, offset=-30.0),
    ],
    "an agent that was restarted shows the rings' newest steps": [
        training_page(3.0, read=31.0),
        training_page(1.0, steps=[510] * 4),
    ],
    "a first step of nine minutes": [page(started=[540.0] * 4)],
    "a first step of nine minutes after a restart": [
        page(alive=[0] * 4, ended=[600.0] * 4, steps=[500] * 4, started=[540.0] * 4)
    ],
    "a second step of nine minutes after a restart": [
        page(alive=[1] * 4, steps=[500] * 4, started=[540.0] * 4)
    ],
    "a program without an optimizer": [page(alive=[1] * 4, steps=[0] * 4, started=[9000.0] * 4)],
    "a rank that joins while the others wait for it": [
        page(started=[5000.0, 5000.0, 5000.0, 30.0])
    ],
    "one rank goes on for the others' agents are slow": [
        training_page(100.0, ranks=2, read=40.0),
        training_page(1.0, ranks=2, node="n2", first=2),
    ],
}


@pytest.mark.parametrize("pages", HEALTHY.values(), ids=HEALTHY)
def test_pauses_that_every_healthy_job_has_are_no_hang(pages):
    assert hung(*pages) is None


@pytest.mark.parametrize(
    ("usual", "quiet"),
    [
        ({"s120": 200.0}, 380.0),  # a checkpoint or an evaluation took as long before
        ({"job": Job(compute=20.0)}, 95.0),  # long steps
    ],
    ids=["a checkpoint as long as the last one", "steps of 20 s"],
)
def test_a_jobs_own_past_says_how_long_a_pause_may_be(usual, quiet):
    judged = steps(**usual)
    assert hung(training_page(quiet), judged=judged) is None
    assert hung(training_page(3 * quiet), judged=judged) == ()


def spans(*open_spans, quiet=700.0):
    """Say whether a job is hung whose ranks are in these spans."""
    view = replace(
        job_view("job", {}), now_unix_seconds=NOW, pace=Pace(0.2, 0.3, 0.3), open_spans=open_spans
    )
    observed = from_pages([training_page(quiet)], job_reports.READS)
    (found,) = hang.findings(observed, view)
    return found.kind == "hang"


@pytest.mark.parametrize("kind", ["checkpoint", "evaluation", "compile"])
def test_a_span_that_a_probe_marks_may_take_twice_as_long_as_the_longest_one(kind):
    began = NOW + OFFSET - 650.0
    assert spans()
    assert not spans(OpenSpan(0, kind, began, 400.0))
    assert spans(OpenSpan(0, kind, began, 300.0))
    assert not spans(OpenSpan(0, kind, began, None))
    assert spans(OpenSpan(0, kind, began - 1300.0, None), quiet=2000.0)


def test_a_span_on_an_agents_page_keeps_a_pause_from_being_called_a_hang():
    def paused(kind, quiet, began, *more):
        labels = f'{{job_id="job",rank="0",kind="{kind}"}}'
        text = f"{training.SPAN_BEGAN.name}{labels} {NOW + OFFSET - began}\n" + "".join(more)
        whole = training_page(quiet)
        return hung(replace(whole, body=whole.text + text))

    usual = f'{training.CHECKPOINT_LAST_WRITE.name}{{job_id="job",rank="0"}} 100\n'
    assert hung(training_page(150.0)) == ()
    assert paused("evaluation", 150.0, 149.0) is None
    assert paused("checkpoint_save", 150.0, 149.0, usual) is None
    assert paused("checkpoint_save", 250.0, 249.0, usual) == ()
