"""What rank 0 does every so many steps, such as logging, is no stall of its host."""

import numpy as np
import pytest

from rankscope_analyzers.stragglers.rank_zero_work import RankZeroWork
from simulated_jobs import Fault, Job, diagnosed, findings, records
from suite_jobs import fault, made

SCATTERED = np.cumsum([20, 7, 13, 9, 17, 6, 11, 19, 8, 14, 5, 16, 10, 12])


def stalled(steps, rank=0, seconds=0.5, **changes):
    """Return the records of a job in which one rank takes longer in some steps."""
    longer = tuple(Fault("compute", (rank,), seconds, step, step + 1) for step in steps)
    rows = records(Job(faults=longer, **changes))
    return rows.assign(timing_source="host", other_seconds=0.01)


@pytest.mark.parametrize("ranks", [8, 16])
@pytest.mark.parametrize("every", [5, 10, 25])
def test_what_rank_zero_does_every_so_many_steps_is_its_own_work(every, ranks):
    assert findings(stalled(range(every - 1, 200, every), ranks=ranks)) == []


@pytest.mark.parametrize("cut", range(60, 120, 4))
def test_it_is_not_named_before_its_regularity_shows_either(cut):
    rows = stalled(range(19, 200, 10))
    assert findings(rows[rows["step"] < cut]) == []


def test_the_report_says_how_long_all_ranks_waited_for_it():
    (aside,) = diagnosed(stalled(range(9, 200, 10))).verdict.asides
    assert aside.startswith("In 19 of 200 steps all ranks waited for the first one, 9.")


def test_stalls_of_rank_zero_at_unequal_distances_are_stalls():
    (found,) = findings(stalled(SCATTERED))
    assert (found.kind, found.where.ranks) == ("host_transient", (0,))


def test_stalls_of_any_other_rank_are_named_even_if_they_are_regular():
    (found,) = findings(stalled(range(9, 200, 10), rank=3))
    assert (found.kind, found.where.ranks) == ("host_transient", (3,))


@pytest.mark.parametrize("timing", ["wall", "host"])
@pytest.mark.parametrize("spared", [0, 1, 2])
def test_work_that_doubles_some_steps_and_not_others_hides_no_pauses_of_another(spared, timing):
    """Steps that are twice as long as others are judged one by one, and shorter ones together."""
    logged = [
        Fault("compute", (0,), 1.1 if number % 3 == spared else 1.3, step, step + 1)
        for number, step in enumerate(range(10, 300, 10))
    ]
    paused = [Fault("compute", (1,), 12.0, step, step + 1) for step in range(37, 300, 37)]
    rows = records(Job(ranks=4, steps=300, faults=(*logged, *paused)))
    outside = (rows["compute_seconds"] - 1.05).clip(lower=0)
    rows = rows.assign(
        timing_source=timing,
        compute_seconds=rows["compute_seconds"] - outside,
        other_seconds=0.01 + outside,
    )
    (found,) = findings(rows)
    assert (found.kind, found.where.ranks) == ("host_transient", (1,))


@pytest.mark.parametrize(
    ("steps", "regular"),
    [
        ([10, 20], []),
        ([10, 20, 30], [10, 20, 30]),
        ([10, 20, 31], []),
        ([10, 20, 30, 40, 47], [10, 20, 30, 40]),
        ([10, 20, 33, 40, 47], []),
        ([10, 20, 50, 60], []),
        ([4, 8, 12, 16], []),
        ([5, 10, 15, 20], [5, 10, 15, 20]),
    ],
)
def test_steps_at_equal_distances_are_regular_unless_too_many_are_not(steps, regular):
    work = RankZeroWork()
    for step in steps:
        work.add_stall(step, 0.5)
    assert work.regular_stalls == set(regular)


def test_a_job_that_is_resumed_from_an_earlier_step_counts_each_of_its_steps():
    work = RankZeroWork()
    for step in (10, 20, 30, 40, 20, 30, 40):
        work.add_stall(step, 0.5)
    assert work.regular_stalls == {20, 30, 40}
    assert (work.waits.steps, work.waits.seconds) == (7, 3.5)


@pytest.mark.parametrize(
    ("tensor", "pipeline", "kind"), [(4, 1, "gpu"), (2, 2, "gpu"), (2, 2, "node"), (1, 4, "gpu")]
)
def test_a_rank_that_became_slow_has_not_been_stalled_as_well(tensor, pipeline, kind):
    """Compute by the host's clock contains stalls: the first slow steps look like some."""
    slow = fault("gpu_compute", kind, 1.25, last=220)
    rows = made(slow, tensor=tensor, pipeline=pipeline, timing="blocked").records
    timed = rows[["data_seconds", "compute_seconds", "sync_seconds"]].sum(axis=1)
    other = (rows["step_seconds"] - timed).clip(lower=0)
    said = findings(rows.assign(timing_source="host", other_seconds=other))
    assert [one.kind for one in said] == ["gpu_compute"]
    assert said[0].where.ranks[0] // 8 == 1


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_stalls_began_with_the_first_of_them_although_several_were_needed(ranks):
    rows = stalled(SCATTERED + 20, rank=1, ranks=ranks)
    (found,) = findings(rows)
    assert (found.kind, found.where.ranks) == ("host_transient", (1,))
    first = rows[rows["step"] == SCATTERED[0] + 20]["t_start_unix_seconds"].min()
    assert found.since_unix_seconds == pytest.approx(first, abs=5)
