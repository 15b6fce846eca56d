"""The last that is still taken and the first that is not, of lists and watches of pods."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pod_json import pod
from rankscope_agent.sources.pods import reflector as following
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.records import parse_pod
from rankscope_agent.sources.pods.reflector import Reflector
from standing_clock import clock

__all__ = ["clock"]


class Events:
    """A watch in which nothing happens."""

    def __enter__(self):
        return iter(())

    def __exit__(self, *error):
        return None


class Server:
    """An API server whose answers a test gives."""

    def __init__(self, clock):
        self.clock, self.lasts, self.error, self.seconds = clock, 0.0, None, []
        self.listed = 0

    def list_pods(self, node, take):
        for index in range(self.listed):
            take(pod(f"p{index}", number=index))
        return {"metadata": {"resourceVersion": "1"}}

    def watch_pods(self, node, version, seconds):
        self.seconds.append(seconds)
        self.clock.now += self.lasts
        if self.error:
            raise self.error
        return Events()


@pytest.fixture
def followed(monkeypatch, clock):
    monkeypatch.setattr(following, "time", clock)
    server = Server(clock)
    made = Reflector(server, PodDirectory(), "n1", clock=clock.time, jitter=lambda: 0.0)
    return SimpleNamespace(server=server, reflector=made)


def test_a_watch_shorter_than_five_seconds_is_a_failure(followed):
    followed.reflector._iteration()
    followed.server.lasts = 4.9
    assert followed.reflector._iteration() == 2.0
    followed.server.lasts = 5.1
    assert followed.reflector._iteration() == 0.0


def test_failures_count_in_a_row_until_a_watch_has_lasted_two_minutes(followed):
    followed.reflector._iteration()
    pauses = []
    for lasts in (1.0, 1.0, 119.0, 1.0, 121.0, 1.0):
        followed.server.lasts = lasts
        pauses.append(followed.reflector._iteration())
    assert pauses == [2.0, 4.0, 0.0, 8.0, 0.0, 2.0]
    followed.server.error = OSError("gone")
    pauses = []
    for lasts in (1.0, 119.0, 121.0):
        followed.server.lasts = lasts
        pauses.append(followed.reflector._iteration())
    assert pauses == [4.0, 8.0, 2.0]


@pytest.mark.parametrize(("lasts", "pause"), [(59.0, 2.0), (61.0, 0.0)])
def test_a_watch_that_was_silent_for_a_minute_is_simply_begun_again(followed, lasts, pause):
    followed.reflector._iteration()
    followed.server.lasts, followed.server.error = lasts, TimeoutError()
    assert followed.reflector._iteration() == pause


def test_watches_are_asked_for_four_to_eight_minutes(followed):
    followed.reflector._iteration()
    for jitter in (0.0, 1.0):
        followed.reflector._jitter = lambda jitter=jitter: jitter
        followed.server.lasts = 10.0
        followed.reflector._iteration()
    assert followed.server.seconds == [240, 480]


@pytest.mark.parametrize(
    ("listed", "known", "dropped"), [(4096, 4096, 0), (4200, 4096, 104), (8193, 4096, 4096)]
)
def test_4096_pods_of_a_list_are_known_and_as_many_others_are_counted(
    followed, monkeypatch, caplog, listed, known, dropped
):
    one = parse_pod(pod())
    monkeypatch.setattr(following, "_pod", lambda item: replace(one, uid=item["metadata"]["uid"]))
    followed.server.listed = listed
    followed.reflector._iteration()
    directory = followed.reflector._directory
    assert (len(directory.pods()), directory.dropped) == (known, dropped)
    assert ("only the first 4096" in caplog.text) is (dropped > 0)
