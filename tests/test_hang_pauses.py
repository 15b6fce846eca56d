"""Pauses that no step explains: what a marked span took, and ranks that are at work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope_agent.contract.flight_dump import Frame
from rankscope_agent.contract.metrics import training
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import PageHistory
from rankscope_analyzers.layers.pace import pace_of_frame
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from simulated_jobs import Job, diagnosed, records
from test_hang import NOW, OFFSET, reported_with, standing, training_page


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
