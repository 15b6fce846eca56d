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
