"""Ranks that recover or join while a fault lasts, and ranks that restarts move to other nodes."""

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.stragglers.incident_tracker import IncidentTracker
from rankscope_analyzers.stragglers.incidents import Incident, Moment, same_fault
from rankscope_analyzers.stragglers.view import Candidate
from simulated_jobs import Fault, Job, diagnosed, findings, records


def slow(rank, seconds, first=60, last=1_000_000, kind="compute"):
    return Fault(kind, (rank,), seconds, first_step=first, last_step=last)


def named(*faults, ranks=32, steps=300):
    return findings(records(Job(ranks=ranks, steps=steps, faults=faults)))


@pytest.mark.parametrize("kind", ["compute", "data"])
@pytest.mark.parametrize("ranks", [8, 32])
def test_a_rank_that_becomes_slower_than_the_one_that_is_named_is_named_first(kind, ranks):
    worse = slow(ranks - 3, 0.35, first=150, kind=kind)
    (found,) = named(slow(3, 0.2, kind=kind), worse, ranks=ranks)
    assert found.where.ranks == (ranks - 3, 3)
    assert f"rank {ranks - 3} " in found.summary
    assert found.evidence[0].observed - found.evidence[0].expected == pytest.approx(0.35, abs=0.03)
    assert "episode" not in found.summary


def test_a_rank_that_recovers_is_named_no_longer():
    (found,) = named(slow(29, 0.4, last=150), slow(3, 0.25))
    assert (found.where.ranks, found.until_unix_seconds) == ((3,), None)


def test_of_a_node_that_recovers_the_rank_stays_that_is_still_slow():
    hot = Fault("compute", tuple(range(8, 16)), 0.4, first_step=60, last_step=150)
    (found,) = named(hot, slow(12, 0.4, first=150))
    assert (found.where.ranks, found.until_unix_seconds) == ((12,), None)
    assert "episode" not in found.summary


def test_ranks_of_a_node_that_become_slow_one_after_the_other_are_all_named():
    ramp = [slow(rank, 0.4, first=60 + 8 * (rank - 8)) for rank in range(8, 12)]
    found, *_ = named(*ramp)
    assert sorted(found.where.ranks) == [8, 9, 10, 11]


def test_a_rank_whose_node_falls_silent_stays_named_beside_one_that_reports():
    rows = records(Job(ranks=32, steps=300, faults=(slow(3, 0.4), slow(29, 0.35))))
    (found,) = findings(rows[(rows["rank"] >= 8) | (rows["step"] < 150)])
    assert sorted(found.where.ranks) == [3, 29]


class Evaluations:
    """Evaluations of a job that find a slow GPU on some ranks, on one node each."""

    def __init__(self):
        self.tracker = IncidentTracker()
        self.now = 0.0

    def find(self, *ranks, times=1, observed=2.0, silent=(), kind="gpu_compute"):
        candidate = Candidate(kind, 0.2, ranks, -1, observed, 1.0)
        for _ in range(times):
            self.now += 10.0
            self.tracker.update(
                [candidate],
                "kernels",
                Moment(self.now, self.now - 160.0),
                lambda one: tuple(f"node-{rank}" for rank in one.ranks),
                lambda rank: rank in silent,
            )
        return [one.ranks for one in self.tracker.incidents if one.until is None]


@pytest.mark.parametrize(("kind", "needed"), [("gpu_compute", 4), ("network_link", 10)])
def test_ranks_join_and_leave_after_a_window_in_which_they_did(kind, needed):
    job = Evaluations()
    job.find(3, 9, times=3, kind=kind)
    assert job.find(3, 5, times=needed - 1, kind=kind) == [(3, 9)]
    assert job.find(3, 5, kind=kind) == [(3, 5)]


def test_a_rank_that_is_missing_now_and_then_stays():
    job = Evaluations()
    job.find(3, 9, times=3)
    for _ in range(5):
        job.find(3, times=3)
        assert job.find(3, 9) == [(3, 9)]


def test_a_rank_that_reports_nothing_does_not_leave():
    job = Evaluations()
    job.find(3, 9, times=3)
    assert job.find(3, times=20, silent={9}) == [(3, 9)]


def test_ranks_that_are_unknown_at_first_are_named_when_they_are_known():
    job = Evaluations()
    job.find(times=3)
    assert job.find(4, times=4) == [(4,)]


def test_an_incident_whose_ranks_all_recovered_ends():
    job = Evaluations()
    job.find(3, 9, times=3)
    for rank in range(20, 28):  # somewhere else each time: noise
        left = job.find(rank)
    assert left == []


def test_of_two_ranks_the_worse_is_named_first_if_it_has_been_clearly_worse_for_a_window():
    job = Evaluations()
    job.find(3, 9, times=3)
    assert job.find(9, 3, times=8, observed=2.2) == [(3, 9)]
    job.find(9, 3, times=3, observed=2.3)
    assert job.find(9, 3, observed=2.3) == [(9, 3)]


def after_restart(before, after, nodes):
    """Return the records of two runs; the second one has its ranks on other nodes."""
    shift = (before["t_start_unix_seconds"] + before["step_seconds"]).max() + 120
    begin = shift - after["t_start_unix_seconds"].min()
    after = after.assign(
        t_start_unix_seconds=after["t_start_unix_seconds"] + begin,
        node=[nodes[name] for name in after["node"]],
        attempt=1,
    )
    return pd.concat([before.assign(attempt=0), after], ignore_index=True)


MOVED = {"node-00000": "node-00009", "node-00001": "node-00001"}


def restarted(again):
    before = Job(ranks=16, steps=160, faults=(slow(3, 0.4),))
    after = Job(ranks=16, steps=160, faults=(slow(3, again, first=0),) if again else ())
    return after_restart(records(before), records(after, seed=1), MOVED)


def test_a_rank_that_is_slow_on_its_new_node_too_is_named_there():
    found, past = findings(restarted(0.4))
    assert (found.where.nodes, found.until_unix_seconds) == (("node-00009",), None)
    assert past.where.nodes == ("node-00000",)
    assert past.until_unix_seconds < found.since_unix_seconds


def test_a_fault_of_a_node_that_the_job_left_is_over_with_the_restart():
    rows = restarted(0)
    began = rows[rows["attempt"] == 1]["t_start_unix_seconds"].min()
    (found,) = findings(rows[rows["t_start_unix_seconds"] < began + 25])
    assert (found.where.nodes, found.until_unix_seconds < began) == (("node-00000",), True)


def test_a_watch_that_follows_a_job_names_the_new_node():
    rows, followed = restarted(0.4), FollowedJobs()
    ends = rows["t_start_unix_seconds"] + rows["step_seconds"]
    for until in np.arange(ends.min() + 60, ends.max() + 60, 60.0):
        last = diagnosed(rows[ends <= until], followed=followed).verdict
    assert last.cause.where.nodes == ("node-00009",)


def test_only_the_ranks_that_moved_are_named_on_another_node():
    pair = (slow(3, 0.4, first=0), slow(12, 0.4, first=0))
    rows = [records(Job(ranks=16, steps=160, faults=pair), seed) for seed in (0, 1)]
    found, *_ = findings(after_restart(*rows, MOVED))
    places = {one.rank: one.node for one in found.where.culprits}
    assert places == {3: "node-00009", 12: "node-00001"}


def incident(ranks, nodes, since=0.0, until=None, **changes):
    return Incident("gpu_compute", 0.0, since, until, ranks, nodes, -1, 0.1, 0.5, 2.0, 1.0,
                    **changes)  # fmt: skip


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (incident((3, 5), ("a", "b")), True),
        (incident((3,), ("b",)), False),
        (incident((3,), ("unknown",)), True),
        (incident((), ()), False),
    ],
)
def test_a_fault_is_the_same_on_the_same_node(other, same):
    assert same_fault(incident((3,), ("a",)), other) is same


def test_a_fault_that_goes_on_with_known_ranks_is_the_same():
    unknown = incident((), (), until=10.0)
    assert same_fault(unknown, incident((3,), ("a",), since=10.0, continues=True))
    assert not same_fault(unknown, incident((3,), ("a",), since=10.0))


def test_incidents_that_go_on_are_no_episodes_of_their_own_when_they_are_merged():
    first = incident((3,), ("a",), until=10.0)
    second = incident((3, 5), ("a", "b"), since=10.0, until=20.0, continues=True)
    again = incident((3,), ("a",), since=50.0)
    assert second.merged_with(first).episodes == 1
    assert again.merged_with(second.merged_with(first)).episodes == 2
