"""Nodes whose clocks are seconds to years apart are compared step by step all the same."""

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps import far_clocks
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from simulated_jobs import Fault, Job, diagnosed, records

LATE = "node-00001"


def job(rank=11, **changes):
    slow = Fault("compute", (rank,), 0.5, first_step=60)
    return records(Job(**{"ranks": 16, "steps": 160, "faults": (slow,), **changes}))


def ahead(rows, seconds, node=LATE):
    rows = rows.copy()
    rows.loc[rows["node"] == node, "t_start_unix_seconds"] += seconds
    return rows


@pytest.mark.parametrize("seconds", [5.0, 45.0, 7200.0, -7200.0, 1e8])
@pytest.mark.parametrize("rank", [3, 11])
def test_a_slow_rank_is_named_however_far_the_clock_of_a_node_is_off(rank, seconds):
    verdict = diagnosed(ahead(job(rank), seconds)).verdict
    assert (verdict.cause.kind, verdict.cause.where.ranks) == ("gpu_compute", (rank,))
    (said,) = [sentence for sentence in verdict.unobserved if "by its clock" in sentence]
    assert f" {abs(seconds):.1f} s later than others" in said
    apart = {one.node: one.seconds for one in verdict.clock_offsets}
    assert apart[LATE] - apart["node-00000"] == pytest.approx(seconds, abs=0.2)


def of_rank(rows, rank, seconds):
    rows = rows.copy()
    rows.loc[rows["rank"] == rank, "t_start_unix_seconds"] += seconds
    return rows


@pytest.mark.parametrize("seconds", [45.0, 7200.0, -7200.0])
@pytest.mark.parametrize("odd", [3, 11])
def test_a_rank_alone_whose_clock_is_off_costs_nobody_the_verdict(odd, seconds):
    rows = of_rank(job(11), odd, seconds)
    verdict = diagnosed(rows).verdict
    assert (verdict.cause.kind, verdict.cause.where.ranks) == ("gpu_compute", (11,))
    (said,) = [sentence for sentence in verdict.unobserved if "by its clock" in sentence]
    assert said.startswith(f"rank {odd} of node node-0000{odd // 8} ends steps {abs(seconds):.1f}")
    assert far_clocks.ahead(rows).nodes == {}


def test_a_rank_and_a_node_whose_clocks_are_off_are_both_said():
    rows = of_rank(ahead(job(ranks=24), 3600.0), 2, -600.0)
    found = far_clocks.ahead(rows)
    assert found.nodes == {LATE: pytest.approx(3600.0, abs=0.1)}
    assert found.ranks == {("node-00000", 2): pytest.approx(-600.0, abs=0.1)}
    moved = far_clocks.moved(rows, found)
    assert far_clocks.ahead(moved) == far_clocks.NONE


def test_all_ranks_of_one_node_but_one_are_moved_by_themselves():
    rows = of_rank(ahead(job(ranks=24), 3600.0), 15, -3600.0)
    assert set(far_clocks.ahead(rows).ranks) == {(LATE, rank) for rank in range(8, 15)}


def test_a_rank_that_counts_its_steps_otherwise_has_no_wrong_clock():
    """It ends its newest step when all do, whatever it calls it."""
    rows = job(faults=())
    rows.loc[rows["rank"] == 3, "step"] += 12
    assert far_clocks.ahead(rows) == far_clocks.NONE


def test_it_has_none_either_where_a_node_has_one():
    rows = ahead(job(ranks=24, faults=()), 3600.0)
    rows.loc[rows["rank"] == 3, "step"] += 12
    found = far_clocks.ahead(rows)
    assert (set(found.nodes), found.ranks) == ({LATE}, {})


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.9])
def test_clocks_that_are_less_than_a_second_apart_are_left_alone(seconds):
    rows = ahead(job(), seconds)
    assert far_clocks.ahead(rows) == far_clocks.NONE
    assert not any("clock" in one for one in diagnosed(rows).verdict.unobserved)


def test_clocks_less_than_two_steps_apart_are_left_alone():
    rows = job(compute=60.0)
    assert far_clocks.ahead(ahead(rows, 100.0)) == far_clocks.NONE
    assert far_clocks.ahead(ahead(rows, 150.0)).nodes == {LATE: pytest.approx(150.0, abs=0.1)}


def test_a_job_that_restarted_is_put_together_by_attempts():
    first, second = job(steps=60), job(steps=120)
    gap = first["t_start_unix_seconds"].max() + 60 - second["t_start_unix_seconds"].min()
    second["t_start_unix_seconds"] += gap
    rows = pd.concat([first.assign(attempt=0), second.assign(attempt=1)], ignore_index=True)
    verdict = diagnosed(ahead(rows, 3600.0)).verdict
    assert (verdict.cause.kind, verdict.cause.where.ranks) == ("gpu_compute", (11,))


def test_of_three_nodes_the_one_that_disagrees_is_moved():
    rows = job(ranks=24)
    for node in ("node-00000", "node-00001", "node-00002"):
        found = far_clocks.ahead(ahead(rows, -30.0, node))
        assert (found.nodes, found.ranks) == ({node: pytest.approx(-30.0, abs=0.1)}, {})


def test_a_clock_that_is_none_moves_nothing():
    rows = job()
    chance = np.random.default_rng(1).uniform(-3600, 3600, len(rows))
    late = rows["node"] == LATE
    rows["t_start_unix_seconds"] += np.where(late, chance, 0.0)
    assert far_clocks.ahead(rows) == far_clocks.NONE


def test_a_node_that_ended_long_before_the_others_is_not_moved():
    rows = job()
    gone = rows[(rows["node"] != LATE) | (rows["step"] < 60)]
    assert far_clocks.ahead(gone) == far_clocks.NONE


@pytest.mark.parametrize("steps", [7, 8])
def test_an_offset_takes_eight_common_steps(steps):
    rows = ahead(job(faults=()), 100.0)
    few = rows[(rows["node"] != LATE) | (rows["step"] < steps)]
    assert bool(far_clocks.ahead(few)) == (steps == 8)


def test_looks_of_a_watch_move_a_node_by_the_same_time():
    rows = ahead(job(), 3600.0)
    followed, said = FollowedJobs(), []
    for last in (50, 110, 160):
        part = JobRecords("job", rows[rows["step"] < last], None, (), live=True)
        (judged,) = diagnose_each([part], followed).diagnoses
        said.append(judged.verdict.cause and judged.verdict.cause.where.ranks)
        assert judged.verdict.unobserved
        assert not judged.frame.dropped
    assert said == [None, (11,), (11,)]


@pytest.mark.parametrize("column", ["node", "t_start_unix_seconds", "step_seconds", "step", "rank"])
@pytest.mark.parametrize("value", [None, "x", float("inf"), -1])
def test_what_no_record_holds_costs_nothing(column, value):
    rows = ahead(job(), 100.0).astype({column: object})
    rows.loc[rows.index[::3], column] = value
    found = far_clocks.ahead(rows)
    assert {*found.nodes, *(node for node, _ in found.ranks)} <= {"node-00000", LATE, str(value)}
    assert len(far_clocks.moved(rows, found)) == len(rows)
    rows[column] = value
    assert far_clocks.ahead(rows).nodes == {}
    assert len(far_clocks.ahead(rows).ranks) == (8 if column == "node" and value is not None else 0)
    assert far_clocks.ahead(rows.drop(columns=column)) == far_clocks.NONE
