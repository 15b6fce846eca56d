"""Where runs of a job end, and which numbers of records are any: at each threshold and beyond."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps import beside_steps, far_clocks, frames, rows
from rankscope_analyzers.steps.layout import layout
from rankscope_analyzers.steps.records import TIMINGS, Account, RecordError
from rankscope_analyzers.steps.rows import Rows
from rankscope_analyzers.steps.runs import Runs
from rankscope_analyzers.steps.tables import FrameTable


def of_one_rank(step, start, lasted):
    count = len(step)
    zeros = np.zeros(count, dtype=np.int64)
    floats = {"step_seconds": np.full(count, lasted)}
    return Rows(np.arange(count), np.array(step), zeros, zeros, np.array(start), floats, {})


def runs_of(step, start, lasted):
    return len(list(Runs(1).split(of_one_rank(step, start, lasted))))


@pytest.mark.parametrize(
    ("lasted", "pause", "runs"),
    [(0.1, 4.9, 1), (0.1, 5.1, 2), (10.0, 29.0, 1), (10.0, 31.0, 2)],
)
def test_a_run_ends_where_a_job_idles_for_five_seconds_and_three_steps(lasted, pause, runs):
    assert runs_of([1, 2], [0.0, lasted + pause], lasted) == runs


@pytest.mark.parametrize(("overlap", "runs"), [(0.19, 2), (0.21, 1)])
def test_a_restart_may_begin_a_fifth_of_a_second_early_by_its_clock(overlap, runs):
    assert runs_of([5, 1], [0.0, 10.0 - overlap], 10.0) == runs


@pytest.mark.parametrize(
    ("cuts", "steps", "may"),
    [(99, 0, True), (100, 0, False), (100, 999, False), (100, 1000, True), (101, 1000, False)],
)
def test_a_job_restarts_a_hundred_times_and_once_more_after_each_thousand_steps(cuts, steps, may):
    runs = Runs(1)
    runs._cuts, runs._seen = cuts, steps
    assert runs._may_restart(np.array([0])).tolist() == [may]


def test_whole_numbers_are_exact_up_to_two_to_the_53():
    values = np.array([2.0**53, -(2.0**53), 2.0**53 + 2, np.nan, 7.0])
    assert rows._whole(values, None).tolist() == [2**53, -(2**53), -1, -1, 7]


@pytest.mark.parametrize(("apart", "another"), [(0.0009, False), (0.0011, True)])
def test_a_record_of_another_time_is_another_process_s(apart, another):
    both = of_one_rank([1, 1], [0.0, apart], 1.0)
    found = rows._is_of_another(both, np.array([1]), np.array([0]))
    assert found.tolist() == [another]


def test_compute_is_timed_by_kernels_or_by_the_host():
    assert {name for name, number in TIMINGS.items() if number == TIMINGS["wall"]} == {
        "wall",
        "host",
        "sampled",
    }


def test_a_job_has_at_most_1_048_576_ranks():
    assert layout({"world_size": 1 << 20}, 1).world == 1 << 20
    with pytest.raises(RecordError, match="expected at most 1048576"):
        layout({"world_size": (1 << 20) + 1}, 1)


def three_nodes(ahead, varies=0.0, lasted=0.1):
    """Return 40 steps of three ranks, of which one's clock is ahead, more in odd steps."""
    return pd.DataFrame(
        {
            "step": step,
            "rank": rank,
            "node": f"n{rank}",
            "t_start_unix_seconds": 1e9
            + step * lasted
            + (rank == 1) * (ahead + varies * (step % 2)),
            "step_seconds": lasted,
        }
        for step in range(40)
        for rank in range(3)
    )


@pytest.mark.parametrize(("ahead", "found"), [(0.95, {}), (1.1, {"n1": 1.1}), (1.9, {"n1": 1.9})])
def test_clocks_are_far_apart_from_a_second_on(ahead, found):
    assert far_clocks.ahead(three_nodes(ahead)).nodes == found


@pytest.mark.parametrize(("ahead", "found"), [(3.9, {}), (4.1, {"n1": 4.1}), (7.9, {"n1": 7.9})])
def test_clocks_are_far_apart_from_two_steps_on(ahead, found):
    assert far_clocks.ahead(three_nodes(ahead, lasted=2.0)).nodes == found


@pytest.mark.parametrize(("ahead", "shown"), [(7.24, 7.2), (7.27, 7.3)])
def test_offsets_have_one_decimal_place(ahead, shown):
    assert far_clocks.ahead(three_nodes(ahead)).nodes == {"n1": shown}


@pytest.mark.parametrize(("varies", "known"), [(0.12, True), (0.14, True), (0.17, False)])
def test_an_offset_varies_by_a_tenth_of_it_at_most(varies, known):
    # Half of the steps are ahead by `varies` more: 1.4826 of half of that is the deviation.
    ahead = 100.0
    found = far_clocks.ahead(three_nodes(ahead, varies * ahead))
    assert bool(found.nodes or found.ranks) == known


@pytest.mark.parametrize(("rank", "found"), [(1_048_575, {"n1": 1.9}), (1_048_576, {})])
def test_a_rank_that_no_job_has_tells_no_clock(rank, found):
    records = three_nodes(1.9)
    records["rank"] = records["rank"].mask(records["rank"] == 1, rank)
    assert far_clocks.ahead(records).nodes == found


def left_of(steps, some):
    """Return how many ranks of 1,024 are left of the second step, which `some` did.

    Args:
        steps: of all; the third one and those that follow are of one rank alone.
    """
    step = np.repeat(np.arange(steps), [1024, some, *[1] * (steps - 2)])
    rank = np.concatenate([np.arange(1024), np.arange(some), np.zeros(steps - 2, dtype=np.int64)])
    zeros = np.zeros(len(step), dtype=np.int64)
    floats = {"step_seconds": np.ones(len(step))}
    records = Rows(np.arange(len(step)), step, rank, zeros, 1.0 * step, floats, {})
    left, _ = frames._without_thin_steps(records, zeros, Account())
    return int((left.step == 1).sum())


@pytest.mark.parametrize(("steps", "left"), [(4096, 1), (4097, 0)])
def test_four_mebi_cells_are_kept_however_few_ranks_did_a_step(steps, left):
    assert left_of(steps, 1) == left


@pytest.mark.parametrize(("some", "left"), [(127, 0), (128, 128)])
def test_of_more_cells_steps_are_kept_that_an_eighth_of_the_ranks_did(some, left):
    assert left_of(5000, some) == left


@pytest.mark.parametrize(("steps", "compared"), [(256, 256), (257, 256)])
def test_clocks_are_compared_in_the_newest_256_steps(steps, compared):
    step = np.repeat(np.arange(steps), 2)
    both = np.tile([0, 1], steps)
    ends = far_clocks._Ends(both, np.array([0, 1 << 20]), step, step + 0.5)
    table = far_clocks._table(ends)
    assert (len(table), table[-1].tolist()) == (compared, [steps - 0.5] * 2)


@pytest.mark.parametrize(("records", "batches"), [(65_536, 1), (65_537, 2)])
def test_65_536_records_are_read_at_once(records, batches):
    table = FrameTable(pd.DataFrame({"t_start_unix_seconds": np.arange(float(records))}))
    assert len(list(table.batches(("t_start_unix_seconds",)))) == batches


@pytest.mark.parametrize(("before", "kept"), [(199_999, 1), (200_000, 0)])
def test_200_000_spans_of_an_answer_are_read(before, kept):
    columns = ["job_id", "rank", "kind", "t_start_unix_seconds", "blocked_seconds"]
    span = ["job", 0, "evaluation", 1.0, 2.0]
    document = {"columns": columns, "rows": [*[[0] * 5] * before, span]}
    assert len(list(beside_steps.read(document))) == kept


@pytest.mark.parametrize(("behind", "runs"), [(64, 1), (65, 2)])
def test_a_rank_that_is_first_seen_65_steps_behind_has_restarted(behind, runs):
    step = np.array([100, 100 - behind])
    ranks, seconds = np.array([0, 1]), {"step_seconds": np.ones(2)}
    records = Rows(np.arange(2), step, ranks, 0 * ranks, np.array([0.0, 2.0]), seconds, {})
    assert len(list(Runs(2).split(records))) == runs
