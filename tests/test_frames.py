import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps import frames
from rankscope_analyzers.steps.records import RecordError
from simulated_jobs import Job, records

NUMBERED = ("gpu", "dp_group", "tp_group", "pp_stage", "attempt", "flags", "step")
FLAG_EVALUATION = 1 << 4
FLAG_FIRST = 1 << 5


def test_rows_in_any_order_give_the_same_matrices():
    rows = records(Job(ranks=4, steps=40))
    shuffled = rows.sample(frac=1.0, random_state=7)
    expected, frame = frames.build("job", rows), frames.build("job", shuffled)
    np.testing.assert_array_equal(frame.compute, expected.compute)
    np.testing.assert_array_equal(frame.steps, np.arange(40))
    assert frame.ranks.tolist() == [0, 1, 2, 3]


def test_a_missing_row_is_nan_and_not_zero():
    rows = records(Job(ranks=4, steps=40)).query("not (step == 30 and rank == 2)")
    frame = frames.build("job", rows)
    assert np.isnan(frame.compute[30, 2])
    assert np.isfinite(frame.compute[30, [0, 1, 3]]).all()


def test_a_step_that_most_ranks_did_not_report_is_not_judged():
    rows = records(Job(ranks=4, steps=40)).query("not (step == 30 and rank > 0)")
    frame = frames.build("job", rows)
    assert not frame.usable[30]
    assert frame.usable[31]


def test_warm_up_is_not_judged_after_every_restart():
    first = records(Job(ranks=2, steps=100))
    second = first.assign(t_start_unix_seconds=first["t_start_unix_seconds"] + 10_000)
    frame = frames.build("job", pd.concat([first, second]))
    assert frame.segments.tolist() == [0] * 100 + [1] * 100
    assert np.flatnonzero(~frame.usable).tolist() == [*range(14), *range(100, 114)]


@pytest.mark.parametrize(("steps", "left_out"), [(20, 5), (40, 10), (56, 14), (80, 14)])
def test_no_more_than_a_quarter_of_a_short_run_is_warm_up(steps, left_out):
    frame = frames.build("job", records(Job(ranks=2, steps=steps)))
    assert np.flatnonzero(~frame.usable).tolist() == [*range(left_out)]


def test_ranks_without_stages_and_groups_are_of_the_first():
    rows = records(Job(ranks=2, steps=40)).drop(columns=["pp_stage", "dp_group"])
    frame = frames.build("job", rows)
    assert (frame.stages.tolist(), frame.groups.tolist()) == ([0, 0], [0, 0])


def test_a_restart_that_rolls_back_keeps_both_executions_of_a_step():
    first = records(Job(ranks=2, steps=60))
    again = first[first["step"] >= 50].copy()
    again["t_start_unix_seconds"] += 500
    frame = frames.build("job", pd.concat([first, again]))
    assert frame.steps.tolist() == [*range(60), *range(50, 60)]
    assert frame.segments.tolist() == [0] * 60 + [1] * 10


def test_a_new_attempt_is_a_restart_even_when_steps_go_on():
    rows = records(Job(ranks=2, steps=80))
    rows["attempt"] = (rows["step"] >= 40).astype(int)
    assert frames.build("job", rows).segments.tolist() == [0] * 40 + [1] * 40


def test_the_newest_run_leaves_out_what_an_earlier_one_recorded():
    earlier = records(Job(ranks=4, steps=50))
    later = records(Job(ranks=2, steps=40))
    later["t_start_unix_seconds"] += 3_600
    frame = frames.build("job", pd.concat([earlier, later]), newest_run=True)
    assert frame.ranks.tolist() == [0, 1]
    assert len(frame.steps) == 40


def test_clock_offsets_between_nodes_do_not_tear_a_restart_apart():
    rows = pd.concat([records(Job(ranks=4, steps=30)) for _ in range(2)])
    rows["t_start_unix_seconds"] += np.repeat([0.0, 1_000.0], len(rows) // 2)
    rows["t_start_unix_seconds"] += rows["rank"] * 0.05
    assert frames.build("job", rows).segments.tolist() == [0] * 30 + [1] * 30


@pytest.mark.parametrize("flag", [FLAG_EVALUATION, FLAG_FIRST])
def test_a_flagged_step_is_not_judged(flag):
    rows = records(Job(ranks=2, steps=40))
    rows["flags"] = np.where((rows["step"] == 33) & (rows["rank"] == 1), flag, 0)
    assert not frames.build("job", rows).usable[33]


def test_ranks_that_never_reported_are_unobserved():
    rows = records(Job(ranks=4, steps=20)).query("rank != 2")
    assert frames.build("job", rows, world_size=6).unobserved == (2, 4, 5)


def test_a_missing_column_is_named():
    with pytest.raises(RecordError, match=r"job j: records lack the columns \['rank'\]"):
        frames.build("j", records(Job()).drop(columns="rank"))


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("step_seconds", np.nan, "incomplete"),
        ("rank", "seven", "incomplete"),
        ("step", 5.5, "fractional"),
        ("step", 1e300, "oversized"),
        ("compute_seconds", -0.5, "negative"),
        ("sync_seconds", np.inf, "infinite"),
        ("step", -3, "negative"),
        ("step_seconds", 0.0, "timeless"),
        ("compute_seconds", np.inf, "infinite"),
        ("t_start_unix_seconds", -np.inf, "infinite"),
    ],
)
def test_a_bad_row_is_dropped_and_counted(column, value, reason):
    rows = records(Job(ranks=2, steps=30)).astype({column: object})
    rows.loc[5, column] = value
    frame = frames.build("job", rows)
    (dropped,) = frame.dropped
    assert (dropped.reason, dropped.count, dropped.row) == (reason, 1, 6)
    assert dropped.what.startswith(f"{column} is ")
    assert np.isfinite(frame.step).sum() == 59


def test_a_part_of_a_step_may_take_no_time_and_a_clock_be_before_1970():
    rows = records(Job(ranks=2, steps=30))
    rows["compute_seconds"] = 0.0
    rows["t_start_unix_seconds"] -= 3e9
    assert frames.build("job", rows).dropped == ()


def test_duplicate_rows_count_once():
    rows = records(Job(ranks=2, steps=30))
    frame = frames.build("job", pd.concat([rows, rows.iloc[:3]]))
    (dropped,) = frame.dropped
    assert (dropped.reason, dropped.count, dropped.row) == ("duplicate", 3, 61)
    assert len(frame.steps) == 30


def test_records_without_a_usable_row_are_an_error_that_says_why():
    rows = records(Job(ranks=2, steps=3)).assign(step_seconds=np.nan)
    with pytest.raises(RecordError, match=r"none of 6 records can be used: 6 incomplete, the "):
        frames.build("job", rows)


def test_durations_that_are_not_measured_stay_unknown():
    rows = records(Job(ranks=2, steps=30)).drop(columns=["compute_seconds", "sync_seconds"])
    frame = frames.build("job", rows)
    assert np.isnan(frame.compute).all()
    assert np.isnan(frame.sync).all()
    assert np.isfinite(frame.data).all()


def test_a_rank_of_ten_digits_is_no_rank():
    """Ranks up to the largest are counted one by one: all memory would go into them."""
    rows = records(Job(ranks=4, steps=60))
    rows.loc[5, "rank"] = 10**10
    frame = frames.build("j", rows)
    assert frame.world_size == 4
    (dropped,) = frame.dropped
    assert (dropped.reason, dropped.count) == ("foreign", 1)


@pytest.mark.parametrize("name", NUMBERED)
@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e308, np.nan])
def test_no_number_is_too_odd_for_any_column(name, value):
    rows = records(Job(ranks=4, steps=60)).assign(attempt=0, flags=0).astype({name: float})
    rows.loc[7, name] = value
    frame = frames.build("j", rows)
    assert frame.world_size == 4
    assert sum(dropped.count for dropped in frame.dropped) == (name == "step")


def scattered(ranks, steps):
    """Return records of ranks of which no two ever do the same step, a second each."""
    count = ranks * steps
    rank = np.arange(count) % ranks
    return pd.DataFrame(
        {
            "step": 1000 + np.arange(count),
            "rank": rank,
            "t_start_unix_seconds": 1.7e9 + 200.0 + np.arange(count) // ranks,
            "step_seconds": 1.0,
            "data_seconds": 0.1,
            "compute_seconds": 0.8,
            "sync_seconds": 0.1,
        }
    )


def test_steps_that_few_of_many_ranks_did_take_no_room():
    ranks = 512
    common = scattered(ranks, 64).assign(
        step=lambda rows: np.arange(len(rows)) // ranks,
        t_start_unix_seconds=lambda rows: 1.7e9 + rows["step"],
    )
    alone = scattered(ranks, 40)
    assert len(alone) * ranks > frames.MOST_CELLS
    frame = frames.build("job", pd.concat([common, alone]))
    assert frame.step.shape == (64, ranks)
    (dropped,) = frame.dropped
    assert (dropped.reason, dropped.count) == ("scattered", len(alone))
    with pytest.raises(RecordError, match="few of 512 ranks have one of step 1000"):
        frames.build("job", alone)
    assert frames.build("job", alone.query("rank < 64")).step.shape == (64 * 40, 64)


def test_a_step_that_an_eighth_of_many_ranks_did_is_kept():
    ranks, share = 1024, int(1024 * frames.THIN_SHARE)
    rows = scattered(ranks, 8).assign(
        step=lambda rows: np.arange(len(rows)) // ranks,
        t_start_unix_seconds=lambda rows: 1.7e9 + rows["step"],
    )
    alone = scattered(ranks, 4)
    for kept, steps in ((share, 9), (share - 1, 8)):
        last = rows.query(f"step == 7 and rank < {kept}").assign(step=8)
        later = last.assign(t_start_unix_seconds=last["t_start_unix_seconds"] + 1.0)
        assert len(frames.build("job", pd.concat([rows, later, alone])).steps) == steps
