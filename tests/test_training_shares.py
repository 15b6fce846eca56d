"""Places for rings and ranks go round: whoever takes most gives up first, and live jobs stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collected_page import Clock, Page, collector
from known_pods import pods_of
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training import follower as ring_follower
from rankscope_agent.sources.training.follower import PODS_RESCAN_SECONDS, RingFollower
from rankscope_agent.sources.training.shares import fair_share
from ring_writer import RingWriter

NOW = 1_700_000_000.0
VOLUME = "volumes/kubernetes.io~empty-dir/rankscope"


@pytest.mark.parametrize(
    ("wanted", "available", "share"),
    [
        ((), 10, 10),
        ((4, 6), 10, 10),  # enough for all: nobody is held back
        ((64, 2), 10, 8),  # the small one gets all it wants
        ((64, 64, 1), 10, 4),
        ((5, 5, 5), 10, 3),
        ((9, 9, 9), 2, 1),
    ],
)
def test_a_share_is_what_leaves_nobody_with_less_than_others(wanted, available, share):
    assert fair_share(wanted, available) == share


@given(st.lists(st.integers(1, 64), min_size=1, max_size=40), st.integers(40, 200))
def test_shares_never_add_up_to_more_than_there_is_and_leave_little(wanted, available):
    share = fair_share(wanted, available)
    given_out = sum(min(want, share) for want in wanted)
    assert given_out <= available
    assert given_out == sum(wanted) or available - given_out < len(wanted)


def volume(root, uid):
    path = root / "kubelet" / "pods" / uid / VOLUME
    path.mkdir(parents=True)
    return path


def held(rings: RingFollower) -> dict[str, int]:
    uids = [followed.ring.pod_uid for followed in rings.rings]
    return {uid: uids.count(uid) for uid in dict.fromkeys(uids)}


def test_a_pod_that_comes_late_gets_its_rings_from_the_one_that_has_most(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_follower, "ring_limit", lambda: 10)
    greedy = volume(tmp_path, "uid-a")
    writers = [RingWriter(greedy, f"{n}.ring", rank=n) for n in range(20)]
    rings = RingFollower(tmp_path, tmp_path / "kubelet", pods_of("team"))
    rings.rescan(NOW)
    assert held(rings) == {"uid-a": 10}
    late = volume(tmp_path, "uid-b")
    writers += [RingWriter(late, f"{n}.ring", rank=n) for n in range(4)]
    for number in range(1, 4):
        rings.rescan(NOW + number * (PODS_RESCAN_SECONDS + 1))
    assert held(rings) == {"uid-a": 6, "uid-b": 4}
    assert rings.refused()["too_many"] == 14
    for writer in writers:
        writer.end()


def test_a_ring_that_gave_up_its_place_is_not_counted_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_follower, "ring_limit", lambda: 2)
    clock = Clock()
    own = [RingWriter(tmp_path, f"{n}.ring", rank=n, job_id="own") for n in range(2)]
    for writer in own:
        writer.step(3)
    rings = collector(tmp_path, clock)
    assert Page(rings).value(metrics.RINGS) == 2
    writers = [RingWriter(volume(tmp_path, uid), "0.ring") for uid in ("uid-a", "uid-b")]
    for _ in range(4):
        clock.now += PODS_RESCAN_SECONDS + 1
        page = Page(rings)
    for writer in writers:
        writer.end()
    for _ in range(3):
        clock.now += PODS_RESCAN_SECONDS + 1
        page = Page(rings)
    steps = [page.rank(metrics.STEPS, n, "own") for n in range(2)]
    assert steps == [3, 3]
    for writer in own:
        writer.end()


def test_made_up_ranks_cost_their_own_job_and_no_job_with_an_open_ring(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "MAX_RANKS", 4)
    clock = Clock()
    victim = RingWriter(tmp_path, "victim.ring", job_id="victim", rank=7)
    victim.step(5)
    ended = RingWriter(tmp_path, "ended.ring", job_id="ended")
    ended.step()
    rings = collector(tmp_path, clock)
    Page(rings)
    ended.end()
    liar = RingWriter(tmp_path, "liar.ring", job_id="liar", rank=0)
    liar.step()
    for rank in range(1, 8):
        clock.now += 1
        made_up = RingWriter(tmp_path, f"{rank}.ring", job_id="liar", rank=rank)
        made_up.step()
        made_up.end()
        page = Page(rings)
    found = set(page.labels(metrics.STEPS))
    assert found >= {("victim", "7"), ("ended", "0"), ("liar", "0")}
    assert len(found) == 4
    assert page.rank(metrics.STEPS, 7, "victim") == 5
    for writer in (victim, liar):
        writer.end()
