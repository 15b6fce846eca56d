"""Ranks that name other groups from step to step, and processes that claim one rank."""

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.reports import html
from rankscope_analyzers.steps import frames
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.steps.layout import ReportedGroups
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.stragglers.rank_grid import grid
from simulated_jobs import Fault, Job, diagnosed, records

GROUPS = ("dp_group", "tp_group", "pp_stage")
CONTRADICTING = "ranks name other groups from step to step: all are compared with each other"


def job(*faults, **changes):
    return records(Job(ranks=16, steps=160, faults=faults, **changes), seed=4)


SLOW = Fault("compute", (11,), 0.5, first_step=60)


@pytest.mark.parametrize("groups", [2, 4, 10**6])
def test_a_slow_rank_is_named_where_ranks_name_groups_at_random(groups):
    rows = job(SLOW)
    random = np.random.default_rng(groups)
    rows = rows.assign(**{name: random.integers(0, groups, len(rows)) for name in GROUPS})
    verdict = diagnosed(rows).verdict
    assert (verdict.cause.kind, verdict.cause.where.ranks) == ("gpu_compute", (11,))
    assert CONTRADICTING in verdict.unobserved


def test_groups_that_stay_are_believed():
    verdict = diagnosed(job(SLOW, groups=2)).verdict
    assert verdict.cause.where.ranks == (11,)
    assert CONTRADICTING not in verdict.unobserved


@pytest.mark.parametrize(("odd", "believed"), [(8, True), (9, False)])
def test_one_record_in_ten_may_name_another_group(odd, believed):
    rank = np.tile(np.arange(4), 20)
    stage = rank // 2
    stage[-odd:] = 1 - stage[-odd:]
    columns = {"pp_stage": stage, "tp_group": rank, "dp_group": rank // 2}
    sizes = grid(ReportedGroups(rank, np.arange(len(rank)), columns)).shape
    assert sizes == ((2, 2, 1) if believed else (1, 4, 1))


def two_processes_a_rank(rows):
    """Return records of which each even rank and the one behind it claim one rank."""
    return rows.assign(rank=rows["rank"] // 2)


def test_where_two_processes_claim_each_rank_half_of_them_were_not_compared():
    sure = diagnosed(job()).verdict
    verdict = diagnosed(two_processes_a_rank(job())).verdict
    assert verdict.cause is None
    assert 0.45 * sure.confidence < verdict.confidence < 0.55 * sure.confidence
    (said,) = [one for one in verdict.unobserved if "contested" in one]
    assert said.endswith("with other times: two processes claim one rank")


def test_what_is_concluded_from_half_of_the_processes_is_less_certain():
    verdict = diagnosed(two_processes_a_rank(job(SLOW))).verdict
    alone = job(SLOW)
    seen = diagnosed(alone[alone["rank"] % 2 == 0]).verdict
    assert verdict.confidence < 0.6 * seen.confidence


@pytest.mark.parametrize(("apart", "reason"), [(0.0009, "duplicate"), (0.0011, "contested")])
def test_a_record_that_comes_twice_is_one_processs_if_its_times_are_the_same(apart, reason):
    rows = job()
    again = rows.tail(5).assign(compute_seconds=rows["compute_seconds"].tail(5) + apart)
    frame = frames.build("job", pd.concat([rows, again], ignore_index=True))
    assert [(one.reason, one.count) for one in frame.dropped] == [(reason, 5)]
    share = 5 / (len(rows) + 5) if reason == "contested" else 0.0
    assert frame.contested_share == pytest.approx(share)


def test_two_processes_that_measure_other_parts_are_told_by_those_that_both_have():
    rows = job().assign(sync_seconds=np.nan)
    again = rows.tail(5)
    frame = frames.build("job", pd.concat([rows, again], ignore_index=True))
    assert [one.reason for one in frame.dropped] == ["duplicate"]


@pytest.mark.parametrize("seconds", [1e-320, 1e300, 0.0])
@pytest.mark.parametrize("column", ["step_seconds", "data_seconds", "compute_seconds"])
def test_times_beyond_all_measure_warn_nobody(column, seconds):
    rows = job()
    odd = np.where(rows["rank"] == 3, seconds, rows[column])
    timing = diagnose_each([JobRecords("job", rows.assign(**{column: odd}), None, (), live=True)])
    (report,) = job_reports.reports(timing, JobEvidence(), 0.0)
    assert html.write([report])
    assert report.errors == ()


@pytest.mark.parametrize("samples", [1e160, 1e300])
def test_samples_beyond_all_measure_cost_no_verdict(samples):
    random = np.random.default_rng(7)
    rows = job(SLOW)
    rows = rows.assign(samples=np.where(random.random(len(rows)) < 0.3, samples, 16.0))
    timing = diagnose_each([JobRecords("job", rows, None, (), live=True)])
    assert timing.errors == ()
    assert timing.diagnoses[0].verdict.cause.where.ranks == (11,)
