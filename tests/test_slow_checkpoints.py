"""Slow checkpoints are those of the writers that are slow now: one node's, or all."""

import pytest

from rankscope_analyzers.stragglers.incident_tracker import IncidentTracker
from rankscope_analyzers.stragglers.incidents import Moment
from rankscope_analyzers.stragglers.view import Candidate
from suite_jobs import fault, found, made

A, B = tuple(range(8, 16)), tuple(range(16, 24))
OFTEN = {"steps": 400, "checkpoint_period": 20, "checkpoint_seconds": 2.0}


def all_writers(first=60, last=400):
    return fault("storage_checkpoint", "all_writers", 4.0, first, last)


def writer(slot, first, last):
    return fault("storage_checkpoint", "writer", 2.5, first, last, slot=slot)


@pytest.mark.parametrize(
    ("faults", "ranks"),
    [
        ([writer(13, 60, 200), writer(20, 200, 400)], [A, B]),
        ([all_writers(), writer(13, 60, 200), writer(20, 200, 400)], [A, B]),
        ([all_writers(), writer(13, 60, 200)], [A, ()]),
        ([all_writers(), writer(13, 200, 400)], [(), A]),
        ([all_writers()], [()]),
    ],
    ids=["alone", "beside slow storage", "one recovers", "one is slower", "all"],
)
def test_the_writers_that_are_slow_now_are_named_when_others_were_before(faults, ranks):
    said = found(made(*faults, **OFTEN))
    assert {one.kind for one in said} == {"storage_checkpoint"}
    assert [tuple(sorted(one.ranks)) for one in said] == ranks
    assert [one.until is None for one in said] == [False] * (len(said) - 1) + [True]


class Checkpoints:
    """Slow checkpoints of a job, a minute apart; each lets two of them look slow."""

    def __init__(self):
        self.tracker, self.now = IncidentTracker(), 0.0

    def slow(self, *of):
        for node in of:
            self.now += 60.0
            ranks = () if node is None else (4 * node, 4 * node + 1)
            candidate = Candidate("storage_checkpoint", 0.2, ranks, -1, 20.0, 4.0)
            moment = Moment(self.now, self.now - 120.0)
            self.tracker.open_slow_checkpoint(candidate, moment, self.nodes)
        return [(one.ranks[:1], one.since, one.until) for one in self.tracker.incidents]

    @staticmethod
    def nodes(candidate):
        return tuple(f"node-{rank // 4}" for rank in candidate.ranks)


def test_it_takes_two_checkpoints_in_a_row_to_name_another_writer():
    job = Checkpoints()
    assert job.slow(1, 1, None, 2, None, 1, 2) == [((4,), -60.0, None)]
    assert job.slow(2) == [((4,), -60.0, 300.0), ((8,), 300.0, None)]


def test_when_all_become_slow_beside_one_the_incident_goes_on_with_all():
    job = Checkpoints()
    assert job.slow(1, 1, None, None) == [((4,), -60.0, 60.0), ((), 60.0, None)]
    assert sum(one.episodes for one in job.tracker.incidents) == 1


def test_a_usual_checkpoint_ends_the_incident_and_what_hinted_at_another_writer():
    job = Checkpoints()
    job.slow(1, 1, 2)
    job.tracker.close_slow_checkpoint()
    assert job.slow(1, 2) == [((4,), -60.0, 180.0), ((4,), 120.0, None)]
