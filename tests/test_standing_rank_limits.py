"""Which ranks are looked at because they end no steps, and which interfaces of pods are shown."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope_agent.sources.pod_netdev.interfaces import PodNetwork, deal_out
from rankscope_agent.sources.stalls.stall_source import StallSource
from standing_clock import Clock


class Rings:
    """Rings of ranks that ended their last step some seconds ago."""

    def __init__(self, ranks, quiet, step, now):
        self.rings = [
            SimpleNamespace(
                identity=SimpleNamespace(job_id="team/job", rank=rank, alive=True),
                active_unix_seconds=now - quiet,
                last_step_seconds=step,
                created_unix_ns=1,
            )
            for rank in range(ranks)
        ]

    def rings_of(self, job_id):
        return self.rings

    def holder(self, ring):
        return ("team", "pod")


def looked_at(monkeypatch, ranks=1, quiet=10.0, step=None, later=()):
    """Return how many ranks are asked at a look, and at others so many seconds after it."""
    clock, asked = Clock(), []
    source = StallSource(Rings(ranks, quiet, step, clock.now), Path("/"), clock)

    def look(self, rings, found):
        asked.append(len(rings))
        for one in rings:
            key = (one.identity.job_id, one.identity.rank, one.created_unix_ns)
            stall = SimpleNamespace(taken_unix_seconds=clock.now)
            self._note(key, stall, 0.1)
            found[key].set_result(stall)

    monkeypatch.setattr(StallSource, "_look", look)
    monkeypatch.setattr(StallSource, "_unseen", lambda self, ring: None)
    source.stalls(None)
    for seconds in later:
        clock.now += seconds
        source.stalls(None)
    return asked


@pytest.mark.parametrize(
    ("quiet", "step", "asked"),
    [(1.9, None, 0), (2.0, None, 1), (1.9, 0.1, 0), (2.0, 0.1, 1), (5.9, 3.0, 0), (6.0, 3.0, 1)],
)
def test_a_rank_is_asked_after_two_seconds_and_two_of_its_steps(monkeypatch, quiet, step, asked):
    assert looked_at(monkeypatch, quiet=quiet, step=step) == [asked]


@pytest.mark.parametrize(("later", "asked"), [(4.9, [1, 0]), (5.0, [1, 1])])
def test_a_rank_is_asked_again_after_five_seconds(monkeypatch, later, asked):
    assert looked_at(monkeypatch, later=(later,)) == asked


@pytest.mark.parametrize(("ranks", "asked"), [(64, 64), (65, 64)])
def test_64_ranks_are_asked(monkeypatch, ranks, asked):
    assert looked_at(monkeypatch, ranks) == [asked]


@pytest.mark.parametrize(
    ("pods", "each", "shown"),
    [(1, 16, [16]), (1, 17, [16]), (4, 16, [16] * 4), (5, 16, [13] * 4 + [12])],
)
def test_16_interfaces_of_a_pod_and_64_of_all_are_shown(pods, each, shown):
    names = dict.fromkeys(f"net{number}" for number in range(each))
    networks = [PodNetwork(str(pod), 1, names, 0) for pod in range(pods)]
    assert [len(chosen) for chosen in deal_out(networks).values()] == shown
