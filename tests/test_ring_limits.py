"""How many rings are open, which are of the present job, and how long a look is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import pytest

from rankscope_agent.sources.training import background_follower, follower
from rankscope_agent.sources.training.background_follower import BackgroundFollower
from rankscope_agent.sources.training.files import RingDirectory
from rankscope_agent.sources.training.listing import RingListings
from rankscope_agent.sources.training.restart_ratios import BATCH, RestartRatios
from rankscope_agent.sources.training.ring_rows import of_present_jobs

NOW = 1_800_000_000


def ring(created, active):
    return SimpleNamespace(
        identity=SimpleNamespace(job_id="team/llm", rank=3),
        created_unix_ns=created * 10**9,
        active_unix_seconds=float(active),
    )


@pytest.mark.parametrize(("pause", "kept"), [(1800, 2), (1801, 1)])
def test_a_rank_that_begins_half_an_hour_after_its_last_step_may_be_of_that_job(pause, kept):
    earlier, later = ring(NOW - 9000, NOW), ring(NOW + pause, NOW + 5000)
    assert list(of_present_jobs([earlier, later])) == [earlier, later][-kept:]


@pytest.mark.parametrize(("descriptors", "rings"), [(4095, 1023), (4096, 1024), (9000, 1024)])
def test_1024_rings_are_open_at_most(monkeypatch, descriptors, rings):
    monkeypatch.setattr(follower, "share", lambda name: descriptors)
    assert follower.ring_limit() == rings


@pytest.mark.parametrize(("smaller", "usual"), [(16, 8.0), (17, None)])
def test_a_batch_is_the_usual_one_of_the_newest_64_steps(smaller, usual):
    ratios = RestartRatios()
    ratios.begin((7, 1), 1)
    ratios.note_batches([8] * 100 + [4] * smaller, 1)
    assert ratios._now.get(BATCH) == usual


class Look:
    """A look for rings that ends at once, and tells how long it was waited for."""

    waits: ClassVar[list[float]] = []
    failure = None

    def __init__(self, follower, now_unix_seconds):
        self.follower = follower

    def start(self):
        pass

    def join(self, seconds):
        self.waits.append(seconds)

    def is_alive(self):
        return False


def test_a_look_is_waited_for_a_second_and_the_first_one_for_four(monkeypatch):
    monkeypatch.setattr(background_follower, "_Look", Look)
    monkeypatch.setattr(Look, "waits", [])
    nothing = SimpleNamespace(
        refused=dict, divide=lambda now: None, rings=(), directories=0, loaded_pods=frozenset()
    )
    monkeypatch.setattr(BackgroundFollower, "_state", lambda self: None)
    patient = BackgroundFollower(nothing)
    for _ in range(3):
        patient.rescan(float(NOW))
    assert Look.waits == [4.0, 1.0, 1.0]


@pytest.mark.parametrize(("late", "listed"), [(0.09, 1), (0.1, 0)])
def test_directories_are_listed_for_a_tenth_of_a_second_of_cpu_time(tmp_path, late, listed):
    (tmp_path / "7-8.ring").write_bytes(bytes(4096))
    times = iter((0.0, late))
    listings = RingListings(lambda: next(times))
    found = list(listings.newest([RingDirectory(tmp_path, (), "")], float(NOW)))
    assert [len(files) for _, _, files in found] == [listed]
