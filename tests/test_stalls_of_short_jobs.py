"""A rank that is slow in every step of a short job is named although single steps stood still."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from simulated_jobs import Fault, Job, findings, records

SLOW = Fault("compute", (1,), 0.08)


def stalled(steps: int, *stalls: tuple[int, int, float]) -> Job:
    """Return a job of two ranks, of which rank 1 is slow: stalls are (step, rank, seconds)."""
    faults = [
        Fault("compute", (rank,), seconds, first_step=step, last_step=step + 1)
        for step, rank, seconds in stalls
    ]
    return Job(
        ranks=2,
        steps=steps,
        compute=0.012,
        data=0.0005,
        transfer=0.004,
        noise=0.3,
        faults=(SLOW, *faults),
    )


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(stalled(48, (46, 1, 3.76)), id="at its end"),
        pytest.param(
            stalled(35, (10, 0, 1.14), (13, 0, 0.1), (17, 1, 0.42), (34, 1, 1.26)), id="both ranks"
        ),
        pytest.param(
            stalled(35, (12, 1, 0.4), (15, 0, 0.18), (29, 1, 0.45), (32, 1, 0.41)), id="four"
        ),
    ],
)
def test_the_slow_rank_is_named(job):
    cause = findings(records(job))[0]
    assert (cause.kind, cause.where.ranks) == ("gpu_compute", (1,))


@pytest.mark.parametrize("timing", ["kernel", "wall"])
@pytest.mark.parametrize("ranks", [2, 8])
def test_a_step_in_which_peers_had_nothing_to_compute_hides_nobody(ranks, timing):
    """The slow rank then takes a hundred times as long as they do: one step, not noise."""
    rows = records(Job(ranks=ranks, steps=48, compute=0.018, transfer=0.06, faults=(SLOW,)))
    idle = rows["step"].isin([14, 29, 44]) & (rows["rank"] != 1)
    rows.loc[idle, "sync_seconds"] += rows.loc[idle, "compute_seconds"]
    rows.loc[idle, "compute_seconds"] = 0.0
    cause = findings(rows.assign(timing_source=timing))[0]
    assert (cause.kind, cause.where.ranks) == ("gpu_compute", (1,))


@pytest.mark.parametrize("timing", ["kernel", "wall"])
def test_a_rank_that_is_a_little_slow_excuses_no_other_one(timing):
    """Two of three ranks are slower than the third: one by a fifth, the other takes ten times."""
    little = Fault("compute", (0,), 0.001)
    job = Job(ranks=3, steps=120, compute=0.005, transfer=0.03, faults=(SLOW, little))
    cause = findings(records(job).assign(timing_source=timing))[0]
    assert (cause.kind, cause.where.ranks) == ("gpu_compute", (1,))


def waiting(rows: pd.DataFrame, chosen: np.ndarray) -> pd.DataFrame:
    """Return records of which some have 2 ms of compute, and wait for the rest of the time."""
    saved = (rows["compute_seconds"] - 0.002).where(chosen, 0.0)
    changed = {"sync_seconds": rows["sync_seconds"] + saved}
    return rows.assign(**changed, compute_seconds=rows["compute_seconds"] - saved)


@pytest.mark.parametrize("timing", ["kernel", "wall"])
@pytest.mark.parametrize(
    ("ranks", "seed"), [*((2, n) for n in range(6)), *((8, n) for n in range(4))]
)
def test_ranks_that_compute_little_in_some_steps_hide_no_slow_one(ranks, seed, timing):
    """The ratio of the slow rank varies from 6 to 50: it is slow in nearly all of these steps.

    No more is a step a long stall in which the fastest third of eight ranks has little to compute.
    """
    rows = records(Job(ranks=ranks, steps=48, compute=0.012, transfer=0.004, faults=(SLOW,)))
    often = np.where(rows["rank"] == 1, 0.04, 0.35)
    rows = waiting(rows, np.random.default_rng(seed).random(len(rows)) < often)
    cause = findings(rows.assign(timing_source=timing))[0]
    assert (cause.kind, cause.where.ranks) == ("gpu_compute", (1,))


@pytest.mark.parametrize("timing", ["kernel", "wall"])
@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("seed", range(4))
def test_ranks_that_compute_little_in_some_steps_make_no_other_one_slow(seed, ranks, timing):
    rows = records(Job(ranks=ranks, steps=96, compute=0.018, transfer=0.06))
    rows = waiting(rows, np.random.default_rng(seed).random(len(rows)) < 0.3)
    assert "gpu_compute" not in {one.kind for one in findings(rows.assign(timing_source=timing))}
