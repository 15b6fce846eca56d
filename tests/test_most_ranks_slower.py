"""More than half of the ranks become slower: no straggler, and yet no slowdown of all of them."""

import numpy as np
import pytest

from rankscope_analyzers.findings.advice import MOST_SLOWER
from rankscope_analyzers.stragglers import global_slowdown
from rankscope_analyzers.stragglers.incident_tracker import IncidentTracker
from rankscope_analyzers.stragglers.incidents import Moment
from rankscope_analyzers.stragglers.view import Candidate
from simulated_jobs import Fault, Job, findings, records
from straggler_views import COMPUTE, shape, view


def slower(ranks, first=100, last=1_000_000, seconds=0.5):
    return Fault("compute", tuple(ranks), seconds, first, last)


def found(world, *faults, steps=200, seed=0):
    return findings(records(Job(ranks=world, steps=steps, faults=faults), seed))


@pytest.mark.parametrize(("many", "world"), [(18, 32), (22, 32), (27, 32), (5, 8), (2, 3), (3, 4)])
@pytest.mark.parametrize("seconds", [0.1, 0.5])
def test_how_many_ranks_became_slower_is_said_and_no_single_one_is_blamed(many, world, seconds):
    said = found(world, slower(range(many), seconds=seconds))[0]
    assert (said.kind, said.where.ranks) == ("global_slowdown", ())
    assert said.summary.startswith(f"{many} of {world} ranks spend 1.")
    assert said.action == MOST_SLOWER.action
    assert said.cost.lost_fraction == pytest.approx(seconds / (1.17 + seconds), rel=0.06)
    assert said.until_unix_seconds is None


@pytest.mark.parametrize(("many", "world"), [(15, 32), (16, 32), (4, 8), (2, 4)])
def test_half_of_the_ranks_or_fewer_are_stragglers_as_before(many, world):
    said = found(world, slower(range(many)))[0]
    assert (said.kind, sorted(said.where.ranks)) == ("gpu_compute", list(range(many)))


@pytest.mark.parametrize(("many", "world"), [(28, 32), (7, 8), (3, 3)])
def test_nearly_all_ranks_are_all(many, world):
    assert found(world, slower(range(many)))[0].summary.startswith("all ranks spend 1.")


def test_when_they_have_recovered_the_incident_is_over():
    said = found(32, slower(range(20), 100, 200), steps=400)[0]
    assert said.kind == "global_slowdown"
    start = records(Job(ranks=32)).t_start_unix_seconds.min()
    assert said.until_unix_seconds - start == pytest.approx(102 * 1.18 + 100 * 1.68, abs=30)


@pytest.mark.parametrize(
    ("steps", "said"), [(340, "24 of 32"), (380, "27 of 32"), (440, "all ranks")]
)
def test_those_that_become_slow_one_after_the_other_are_counted_until_all_are(steps, said):
    each = [slower([rank], 100 + 10 * rank) for rank in range(32)]
    assert found(32, *each, steps=steps)[0].summary.startswith(f"{said} ")


def test_some_that_recover_leave_the_number_of_those_that_do_not():
    one_in_three = slower(range(12), 100, 250)
    said = found(32, one_in_three, slower(range(12, 32), 100), steps=400)[0]
    assert said.summary.startswith("20 of 32 ranks")
    assert "episodes" not in said.summary


HALF = np.where(np.arange(8) < 4, 1.3, 1.0)
MOST = np.where(np.arange(8) < 5, 1.3, 1.0)


@pytest.mark.parametrize(
    ("factors", "arranged"),
    [
        (HALF[None, :, None], shape()),
        (np.array([1.3, 1.0])[:, None, None], shape(pipeline=2)),
        (np.broadcast_to(HALF[None, :, None], (2, 8, 1)), shape(pipeline=2)),
        (np.broadcast_to(MOST[None, :, None], (2, 8, 1)), shape(pipeline=2)),
        (np.broadcast_to(MOST[None, :, None], (1, 8, 2)), shape(tensor=2)),
    ],
    ids=["half", "one of two stages", "half of each stage", "most of each stage", "tensor"],
)
def test_a_slow_half_and_ranks_that_wait_for_others_within_compute_are_no_such_slowdown(
    factors, arranged
):
    assert global_slowdown.slow_compute(view(arranged, compute=COMPUTE * factors)) is None


@pytest.mark.parametrize(("factor", "told"), [(1.058, False), (1.062, True)])
def test_that_most_clocks_wander_by_a_few_per_cent_is_no_slowdown(factor, told):
    factors = np.where(np.arange(8) < 5, factor, 1.0)[None, :, None]
    assert (global_slowdown.slow_compute(view(compute=COMPUTE * factors)) is not None) is told


def test_ranks_that_share_cpus_are_not_counted():
    crowded = view(compute=COMPUTE * MOST[None, :, None], cpu_wait=0.02)
    assert crowded.crowded
    assert global_slowdown.slow_compute(crowded) is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_healthy_jobs_of_few_ranks_are_not_slow(noise, seed):
    assert not findings(records(Job(ranks=5, steps=300, noise=noise), seed))


def seen(how, slower):
    return Candidate("global_slowdown", 0.2, (), -1, 1.5, 1.0, shown_by=how, slower=slower)


class Evaluated:
    """What a tracker holds after evaluations ten seconds apart."""

    def __init__(self):
        self.tracker, self.now = IncidentTracker(), 0.0

    def finds(self, candidate, times=1):
        for _ in range(times):
            self.now += 10.0
            moment = Moment(self.now, self.now - 10.0)
            self.tracker.update([candidate], "kernels", moment, lambda _: ())
        return [(one.shown_by, one.slower, one.until is None) for one in self.tracker.incidents]


def test_the_number_is_that_of_now_and_a_slowdown_of_most_goes_on_as_one_of_all():
    job = Evaluated()
    assert job.finds(seen("most", (18, 32)), times=6) == [("most", (18, 32), True)]
    assert job.finds(seen("most", (22, 32))) == [("most", (22, 32), True)]
    assert job.finds(seen("", (30, 32)), times=3) == [("most", (22, 32), True)]
    assert job.finds(seen("most", (26, 32))) == [("most", (26, 32), True)]
    assert job.finds(seen("", (30, 32)), times=4) == [
        ("most", (26, 32), False), ("", (30, 32), True),
    ]  # fmt: skip
    assert sum(one.episodes for one in job.tracker.incidents) == 1
