"""Single long steps: who paused, who did a chore for all, and what they must not hide."""

import numpy as np
import pytest

from simulated_jobs import Fault, Job, findings, records

BRIEF = Job(ranks=4, compute=0.02, data=0.002, transfer=0.004, steps=1500)


def job():
    return records(BRIEF).assign(timing_source="wall", other_seconds=0.0002)


def longer(rows, hit, rank, seconds):
    """Let a rank need `seconds` more in the steps of `hit`, while all others wait for it."""
    rows = rows.copy()
    own = rows["rank"] == rank
    rows.loc[hit & own, "other_seconds"] += seconds
    rows.loc[hit & ~own, "sync_seconds"] += seconds
    rows.loc[hit, "step_seconds"] += seconds
    lasted = rows[own].sort_values("step")["step_seconds"].to_numpy()
    begin = rows["t_start_unix_seconds"].min() + np.concatenate([[0.0], np.cumsum(lasted)[:-1]])
    return rows.assign(t_start_unix_seconds=begin[rows["step"].to_numpy()])


def said(rows):
    return [(one.kind, one.where.ranks) for one in findings(rows)]


@pytest.mark.parametrize(("every", "seconds"), [(20, 0.05), (37, 0.5)])
def test_a_rank_that_pauses_in_few_steps_is_named(every, seconds):
    rows = job()
    assert said(longer(rows, rows["step"] % every == every - 1, 2, seconds)) == [
        ("host_transient", (2,))
    ]


def test_a_rank_that_stood_still_once_is_told_as_past():
    rows = job()
    (found,) = findings(longer(rows, rows["step"] == 900, 2, 8.0))
    assert (found.kind, found.where.ranks) == ("host_transient", (2,))
    assert found.until_unix_seconds == pytest.approx(found.since_unix_seconds + 8.0, abs=0.1)
    assert "stood still for 8.0" in found.summary


def test_the_steps_between_two_standstills_are_not_lost():
    rows = job()
    still = longer(rows, rows["step"].isin((900, 1000)), 2, 8.0)
    (found,) = findings(still)
    assert found.cost.gpu_hours * 3600 == pytest.approx(4 * 16, rel=0.02)
    assert "in 2 episodes" in found.summary


def test_what_the_first_rank_does_for_all_is_nobodys_fault():
    rows = job()
    assert said(longer(rows, rows["step"] % 50 == 49, 0, 1.0)) == []


def test_checkpoints_of_the_first_rank_that_become_slow_are_slow_storage():
    rows = job()
    wrote = rows["step"] % 100 == 99
    rows = longer(rows, wrote & (rows["step"] < 700), 0, 0.3)
    assert said(longer(rows, wrote & (rows["step"] >= 700), 0, 1.5)) == [("storage_checkpoint", ())]


def test_input_that_becomes_slow_for_all_blames_no_rank():
    rows = job()
    late = rows["step"] >= 600
    slow = np.random.default_rng(1).uniform(0.024, 0.036, int(late.sum()))
    rows.loc[late, "data_seconds"] += slow
    rows.loc[late, "sync_seconds"] += 0.036 - slow
    rows.loc[late, "step_seconds"] += 0.036
    assert said(rows) == [("storage_checkpoint", ())]


@pytest.mark.parametrize("groups", [1, 2])
def test_pauses_inside_compute_by_the_clock_of_the_host_are_seen(groups):
    paused = Fault("compute", (5,), 0.4, first_step=60, share=0.1)
    rows = records(Job(ranks=8, groups=groups, steps=300, faults=(paused,)))
    assert said(rows.assign(timing_source="wall")) == [("host_transient", (5,))]
    healthy = records(Job(ranks=8, groups=groups, steps=300))
    assert said(healthy.assign(timing_source="wall")) == []


def behind_a_barrier(rows):
    """Return records of a job whose checkpoints are followed by a barrier: counted as compute."""
    extra = (rows["other_seconds"] - 0.0002).clip(lower=0)
    return rows.assign(
        compute_seconds=rows["compute_seconds"] + extra,
        other_seconds=rows["other_seconds"] - extra,
    )


def checkpoints(slow, usual=0.4, every=25, writers=(0,)):
    """Return a job that writes every 25 steps, from step 700 on in `slow` seconds."""
    rows = job()
    due = rows["step"] % every == every - 1
    for hit, seconds in ((due & (rows["step"] < 700), usual), (due & (rows["step"] >= 700), slow)):
        if len(writers) == 1:
            rows = longer(rows, hit, writers[0], seconds)
        else:
            rows.loc[hit, ["other_seconds", "step_seconds"]] += seconds
    return rows


@pytest.mark.parametrize("writers", [(0,), (0, 1, 2, 3)])
def test_checkpoints_before_a_barrier_that_become_slow_are_slow_storage(writers):
    rows = checkpoints(2.0, writers=writers)
    assert said(behind_a_barrier(rows)) == [("storage_checkpoint", ())]
    assert said(behind_a_barrier(checkpoints(0.4, writers=writers))) == []


def test_pauses_of_the_first_rank_that_come_at_any_time_are_no_checkpoints():
    rows = job()
    random = np.random.default_rng(3)
    hit = rows["step"].isin(random.choice(1500, 60, replace=False))
    assert said(behind_a_barrier(longer(rows, hit, 0, 0.5))) == [("host_transient", (0,))]


def test_a_wait_of_all_in_one_collective_is_told_and_blamed_on_nobody():
    rows = job()
    rows.loc[rows["step"] == 900, ["sync_seconds", "step_seconds"]] += 8.0
    (found,) = findings(rows)
    assert (found.kind, found.where.ranks) == ("host_transient", ())
    assert "waited in one collective for 8.0" in found.summary
    assert found.until_unix_seconds is not None


def test_input_from_a_storage_that_is_slow_for_all_names_nobody_who_waits_longest():
    rows = job()
    late = rows["step"] >= 600
    for rank, more in enumerate((0.012, 0.011, 0.040, 0.014)):
        own = late & (rows["rank"] == rank)
        rows.loc[own, "data_seconds"] += more
        rows.loc[own, "sync_seconds"] += 0.040 - more
    rows.loc[late, "step_seconds"] += 0.040
    assert said(rows) == [("storage_checkpoint", ())]
    alone = job()
    own = late & (alone["rank"] == 2)
    alone.loc[own, "data_seconds"] += 0.040
    alone.loc[late & ~own, "sync_seconds"] += 0.040
    alone.loc[late, "step_seconds"] += 0.040
    assert said(alone) == [("data_loader", (2,))]


def test_input_that_is_slow_for_all_in_turns_is_seen():
    rows = job()
    late = rows["step"] >= 600
    waits = np.where(rows["step"] % 2 == rows["rank"] % 2, 0.05, 0.0)[late]
    rows.loc[late, "data_seconds"] += waits
    rows.loc[late, "sync_seconds"] += 0.05 - waits
    rows.loc[late, "step_seconds"] += 0.05
    assert said(rows) == [("storage_checkpoint", ())]


def test_a_long_step_that_a_first_rank_hardly_explains_is_no_checkpoint_of_unusual_length():
    rows = checkpoints(2.0)
    crowded = rows["step"] == 660
    rows = longer(rows, crowded, 0, 0.003)
    rows.loc[crowded, ["cpu_wait_seconds", "step_seconds"]] += 0.05
    assert said(rows) == [("storage_checkpoint", ())]


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        pytest.param(2, [("storage_checkpoint", ())], id="two workers deliver together"),
        pytest.param(50, [], id="the first batch of an epoch"),
    ],
)
def test_waits_of_all_ranks_in_every_second_step_are_slow_input(every, expected):
    rows = records(Job(ranks=3, steps=200, compute=0.5, transfer=0.05))
    waits = (rows["step"] >= 80) & (rows["step"] % every == 0)
    rows.loc[waits, ["data_seconds", "step_seconds"]] += 1.1
    lasted = rows.groupby("step")["step_seconds"].max()
    begin = rows["t_start_unix_seconds"].min() + lasted.cumsum() - lasted
    assert said(rows.assign(t_start_unix_seconds=rows["step"].map(begin))) == expected
