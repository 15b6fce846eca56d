"""In jobs of few ranks, of which each step takes another time, chance makes nobody a straggler."""

from __future__ import annotations

import pytest

from simulated_jobs import Fault, Job, findings, records


def told(job: Job, seed: int, timing: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return the kinds and the ranks of what is found in a job."""
    found = findings(records(job, seed).assign(timing_source=timing))
    return [(one.kind, one.where.ranks) for one in found]


@pytest.mark.parametrize(
    ("ranks", "seed", "timing"),
    [(2, 3, "kernel"), (2, 4, "kernel"), (2, 0, "wall"), (3, 3, "wall"), (3, 4, "wall")],
)
def test_a_rank_that_is_slower_by_chance_is_not_named_and_its_host_stalls_nobody(
    ranks, seed, timing
):
    assert told(Job(ranks=ranks, steps=240, noise=0.3), seed, timing) == []


@pytest.mark.parametrize("timing", ["kernel", "wall"])
@pytest.mark.parametrize("first", [0, 100])
def test_a_slow_rank_is_named_among_ranks_whose_steps_vary(first, timing):
    slow = Fault("compute", (1,), 0.5, first_step=first)
    job = Job(ranks=2, steps=200, noise=0.3, faults=(slow,))
    assert told(job, 1, timing) == [("gpu_compute", (1,))]


@pytest.mark.parametrize("timing", ["kernel", "wall"])
def test_two_of_four_ranks_that_are_equally_slow_are_no_chance(timing):
    slow = Fault("compute", (2, 3), 0.3)
    job = Job(ranks=4, steps=100, ranks_per_node=2, faults=(slow,))
    ((kind, ranks),) = told(job, 1, timing)
    assert (kind, set(ranks)) == ("gpu_compute", {2, 3})


def test_a_host_that_stalls_one_of_two_ranks_is_found():
    stalls = Fault("compute", (1,), 0.4, first_step=40, share=0.2)
    assert ("host_transient", (1,)) in told(Job(ranks=2, faults=(stalls,)), 1, "wall")


@pytest.mark.parametrize("ranks", [3, 4, 6])
@pytest.mark.parametrize("lasts", [8, 12])
def test_a_rank_that_is_slow_at_times_has_no_uneven_sequences(ranks, lasts):
    times = range(100, 200, 2 * lasts)
    faults = tuple(Fault("compute", (1,), 0.5, at, at + lasts) for at in times)
    assert told(Job(ranks=ranks, faults=faults), 2, "kernel") == [("gpu_compute", (1,))]


@pytest.mark.parametrize("first", [0, 100])
@pytest.mark.parametrize("ranks", [4, 6])
def test_half_of_the_ranks_cost_what_they_need_beyond_the_other_half(ranks, first):
    slow = Fault("compute", tuple(range(ranks // 2)), 0.4, first_step=first)
    (found,) = findings(records(Job(ranks=ranks, faults=(slow,)), 1))
    assert (found.kind, len(found.where.ranks)) == ("gpu_compute", ranks // 2)
    assert found.known_cost.lost_fraction == pytest.approx(0.4 / 1.6, rel=0.05)
