"""Whose Flight Recorder is queried next, and whose windows are dropped: no job pays for another."""

from __future__ import annotations

from collections import Counter

import pytest

from flight_servers import dump, entry
from known_pods import pods_named_after_their_namespace
from rankscope_agent.sources.flight_recorder import collector as flight
from rankscope_agent.sources.flight_recorder.collector import FlightRecorderCollector
from rankscope_agent.sources.flight_recorder.failures import FlightError
from rankscope_agent.sources.flight_recorder.launches import Launch, Launches
from rankscope_agent.sources.flight_recorder.windows import MAX_LAUNCHES, NS, FlightWindows
from ring_volumes import volume
from ring_writer import HEADER_FIELDS, RingWriter
from standing_clock import Clock

NOW = HEADER_FIELDS["created_unix_ns"] / NS
SCRAPE_SECONDS = 15.0
BODY = dump(entry(1, HEADER_FIELDS["created_unix_ns"] + 10))


class Node:
    """A node whose ranks take some seconds to answer, by the clock of the test.

    Args:
        seconds: by pod, whose name begins with its namespace: those of each of its ranks.
    """

    def __init__(self, root, monkeypatch, **seconds):
        self.clock, self.asked = Clock(NOW), Counter()
        self.refused = set()
        self._seconds, self._rings = seconds, []
        for pod, costs in seconds.items():
            place = volume(root, pod.replace("_", "-"))
            for rank in range(len(costs)):
                name = f"{pod}-{rank}"
                self._rings.append(RingWriter(place, f"{name}.ring", rank=rank, job_id=pod))
                (place / f"{name}.sock").touch()
        names = pods_named_after_their_namespace()
        monkeypatch.setattr(flight, "time", self.clock)
        monkeypatch.setattr(flight, "fetch", self._fetch)
        self.windows = FlightWindows()
        self.collector = FlightRecorderCollector(
            root, root / "kubelet", self.windows, names, self.clock
        )

    def _fetch(self, directory, name, owner, parts, seconds):
        pod, rank = name.removesuffix(".sock").split("-")
        cost = self._seconds[pod][int(rank)]
        self.asked[pod, int(rank)] += 1
        self.clock.now += min(cost, seconds)
        if cost > seconds:
            raise FlightError("timeout", "does not answer in time")
        parts(BODY)

    def run(self, hours):
        until = self.clock.now + hours * 3600
        while self.clock.now < until:
            list(self.collector.collect())
            self.clock.now += SCRAPE_SECONDS
        for ring in self._rings:
            ring.end()

    def failures(self):
        return {
            sample.labels[0]: sample.value
            for sample in self.collector.collect()
            if sample.metric is flight.metrics.FAILURES and sample.value
        }


def test_ranks_behind_slow_ones_are_asked(tmp_path, monkeypatch):
    node = Node(tmp_path, monkeypatch, a_0=[1.9] * 4, b_0=[0.15] * 8)
    node.run(2)
    asked = [node.asked["b_0", rank] for rank in range(8)]
    assert min(asked) >= 10
    assert max(asked) - min(asked) <= 1
    assert min(node.asked["a_0", rank] for rank in range(4)) > 0


def test_ranks_of_a_large_job_take_turns_and_none_is_cut_short(tmp_path, monkeypatch):
    node = Node(tmp_path, monkeypatch, b_0=[0.19] * 48)
    node.run(2)
    asked = [node.asked["b_0", rank] for rank in range(48)]
    assert min(asked) >= 3
    assert max(asked) - min(asked) <= 1
    assert node.failures() == {}


def test_pods_of_one_namespace_together_get_no_more_than_another(tmp_path, monkeypatch):
    slow = {f"a_{pod}": [1.9] for pod in range(6)}
    node = Node(tmp_path, monkeypatch, **slow, b_0=[0.15] * 2)
    node.run(1)
    assert min(node.asked["b_0", 0], node.asked["b_0", 1]) >= max(
        node.asked[pod, 0] for pod in slow
    )
    assert min(node.asked[pod, 0] for pod in slow) > 0


def test_who_makes_new_sockets_all_the_time_is_not_new(tmp_path, monkeypatch):
    node = Node(tmp_path, monkeypatch, b_0=[0.1])
    place = flight.RingDirectory(tmp_path, (), "pod")

    def ask(holder, began):
        return flight.RankSocket(place, "x", None, f"{holder}/j", 0, began, (holder, "pod"))

    asked = []
    monkeypatch.setattr(node.collector, "_pull", lambda one: asked.append(one.job_id))
    for sockets in (
        [ask("x", 1), ask("y", 1)],
        [ask("x", 2)],
        [ask("x", 3), ask("y", 3), ask("z", 1)],
    ):
        node.collector._ask(sockets, NOW)
    assert asked[-3:] == ["z/j", "y/j", "x/j"]


def test_who_was_asked_is_remembered_of_so_many_only(tmp_path, monkeypatch):
    node = Node(tmp_path, monkeypatch, b_0=[0.1])
    for number in range(2 * flight.MAX_SOCKETS + 9):
        node.collector._note_turn(("group", f"pod-{number}"), number)
    assert len(node.collector._last_turns) == 2 * flight.MAX_SOCKETS


def launched(count, at):
    return Launches("nccl", (Launch("0", "all_reduce", 1, at, -1),) * count, True, 0)


@pytest.mark.parametrize("pods", [1, 4])
def test_windows_of_one_namespace_push_out_none_of_another(pods):
    windows = FlightWindows()
    for rank in range(8):
        windows.add(("team", "pod"), "team/job", rank, 0, 10, launched(2_000, 5))
    greedy = MAX_LAUNCHES // 8_000 + 2
    for rank in range(greedy):
        holder = ("greedy", f"pod-{rank % pods}")
        windows.add(holder, "greedy/job", rank, 0, 20 + rank, launched(8_000, 15))
    assert len(windows.since("team/job", 0.0)) == 8
    kept = windows.since(None, 0.0)
    assert sum(len(window.seq) for window in kept) <= MAX_LAUNCHES
    assert [window.rank for window in kept if window.job_id == "greedy/job"][-1] == greedy - 1
    assert [window.end_ns for window in kept] == sorted(window.end_ns for window in kept)


def test_windows_of_one_pod_push_out_none_of_another_of_its_namespace():
    windows = FlightWindows()
    windows.add(("team", "small"), "team/job", 0, 0, 10, launched(2_000, 5))
    for rank in range(MAX_LAUNCHES // 8_000 + 2):
        windows.add(("team", "large"), "team/x", rank, 0, 20 + rank, launched(8_000, 15))
    assert len(windows.since("team/job", 0.0)) == 1
