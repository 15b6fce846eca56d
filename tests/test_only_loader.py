"""Input that some ranks load for others, which fetch nothing and wait for a broadcast."""

from __future__ import annotations

import numpy as np
import pytest

from free_running_jobs import computing, findings, records, verdict
from rankscope_analyzers.stragglers.quantities import Steps

STEPS, RISE = 200, 120


def loaded_by(times, world=4, slow=None):
    """Return records of a job in which only some ranks load.

    Args:
        times: of each of these, (steps,) seconds or one number.
        world: number of ranks.
        slow: a rank that computes longer from some step on.
    """
    data, compute = np.zeros((STEPS, world)), computing(STEPS, world)
    if slow is not None:
        compute[RISE:, slow] += 0.5
    for rank, seconds in times.items():
        data[:, rank] = seconds
    rows = records(compute, data=data)
    rows.loc[~rows["rank"].isin(times), "data_seconds"] = np.nan
    return rows


def later(seconds, before=0.06):
    """Return (steps,) input times that become longer."""
    noise = 1 + 0.05 * np.abs(np.random.default_rng(1).standard_normal(STEPS))
    return noise * np.where(np.arange(STEPS) < RISE, before, seconds)


def blamed(rows):
    return [(one.kind, one.where.ranks) for one in findings(rows)]


@pytest.mark.parametrize("others", [np.nan, 0.0], ids=["unmeasured", "dispatched"])
@pytest.mark.parametrize(("rank", "world"), [(0, 2), (0, 4), (2, 4), (2, 48)])
def test_the_only_rank_that_loads_is_named_when_its_input_becomes_slow(rank, world, others):
    rows = loaded_by({rank: later(0.5)}, world)
    (found,) = findings(rows.fillna({"data_seconds": others}))
    assert (found.kind, found.where.ranks) == ("data_loader", (rank,))
    assert "no other rank loads any" in found.summary
    evidence = found.evidence[0]
    assert (evidence.observed, evidence.expected) == pytest.approx((0.52, 0.0625), rel=0.03)
    began = loaded_by({rank: 0.0}, world)["t_start_unix_seconds"].iloc[world * RISE]
    assert found.since_unix_seconds - began == pytest.approx(0.06 * RISE, abs=8)


def test_it_is_named_if_its_input_was_slow_from_the_start():
    (found,) = findings(loaded_by({0: later(0.4, before=0.4)}))
    assert (found.kind, found.where.ranks) == ("data_loader", (0,))
    assert found.cost.lost_fraction == pytest.approx(0.27, abs=0.03)


@pytest.mark.parametrize("others", [np.nan, 0.0], ids=["unmeasured", "dispatched"])
@pytest.mark.parametrize("seconds", [0.0005, 0.06, 0.2])
def test_a_few_hundredths_of_each_step_are_usual(seconds, others):
    rows = loaded_by({0: later(seconds, before=seconds)})
    judged = verdict(rows.fillna({"data_seconds": others}))
    assert judged.cause is None
    assert not [said for said in judged.unobserved if "cannot be detected" in said]


def test_nobody_is_named_whose_input_the_others_do_not_wait_for():
    rows = loaded_by({0: later(0.5)})
    own = rows["rank"] == 0
    ahead = own & (rows["step"] >= RISE)
    spare = rows.loc[~own & (rows["step"] >= RISE), "sync_seconds"].to_numpy().reshape(-1, 3)
    rows.loc[ahead, "sync_seconds"] = spare.mean(axis=1)
    assert "data_loader" not in [kind for kind, _ in blamed(rows)]


def test_of_several_that_load_the_slow_one_is_named():
    slow = {rank: later(0.5 if rank == 4 else 0.06) for rank in (0, 4, 8, 12)}
    assert blamed(loaded_by(slow, 16)) == [("data_loader", (4,))]


def test_several_that_load_and_become_slow_together_have_a_slow_storage():
    assert blamed(loaded_by({0: later(0.5), 4: later(0.52)}, 8)) == [("storage_checkpoint", ())]


def test_a_slow_rank_that_loads_nothing_is_named_beside_one_that_does():
    assert blamed(loaded_by({0: 0.06}, slow=2)) == [("gpu_compute", (2,))]


def test_input_that_is_measured_in_few_steps_is_not_that_of_a_rank_which_loads():
    rows = loaded_by({0: later(0.5)})
    rows.loc[rows["step"] % 4 > 0, "data_seconds"] = np.nan
    judged = verdict(rows)
    assert [said for said in judged.unobserved if "data_loader" in said]


def test_ranks_load_nothing_where_others_do_and_have_unknown_input_where_nobody_does():
    data = np.full((3, 1, 4, 1), np.nan)
    data[0, 0, 1] = 0.2
    data[1] = 0.1
    compute = np.ones_like(data)
    compute[0, 0, 3] = np.nan
    loaded = Steps(np.ones_like(data), data, compute, data).loaded
    assert loaded[0, 0, :3, 0].tolist() == [0.0, 0.2, 0.0]
    assert np.isnan(loaded[0, 0, 3, 0])
    assert (loaded[1] == 0.1).all()
    assert np.isnan(loaded[2]).all()
