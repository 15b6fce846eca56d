"""How objects of the API server are listed and watched: pages, pauses, and how many are held."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from rankscope_analyzers.intake import object_watch
from rankscope_analyzers.intake.kubernetes_api import Answer, NoAnswerError

PODS = object_watch.Resource("pods", "", ("v1",), lambda item: (item["uid"], item["uid"]))


class Objects:
    """An API server; notes how it is asked."""

    def __init__(self, lists=(), events=()):
        self.lists, self.events, self.gets, self.watches = iter(lists), events, [], []

    def get(self, path, query, seconds):
        self.gets.append((dict(query), seconds))
        return next(self.lists)

    def lines(self, path, query, seconds):
        self.watches.append((int(query["timeoutSeconds"]), seconds))
        yield from self.events


class Pauses(threading.Event):
    """Notes pauses instead of making them; is set after some."""

    def __init__(self, most):
        super().__init__()
        self.most, self.seconds = most, []

    def wait(self, timeout=None):
        self.seconds.append(timeout)
        if len(self.seconds) == self.most:
            self.set()
        return self.is_set()


def follower(api, pauses=1):
    found = object_watch.Follower(api, PODS, lambda _: None)
    found._closing = Pauses(pauses)
    return found


def test_objects_are_listed_a_hundred_at_a_time_within_a_minute():
    api = Objects([Answer(200, {"metadata": {"resourceVersion": "7"}})])
    assert follower(api)._listed() == "7"
    assert api.gets == [({"limit": "100"}, 60.0)]


def test_a_watch_lasts_45_to_75_seconds_and_ten_more_are_waited(monkeypatch):
    asked = []
    monkeypatch.setattr(object_watch.random, "randint", lambda *given: asked.append(given) or 60)
    api = Objects()
    follower(api)._watched("1")
    assert asked == [(45, 75)]
    assert api.watches == [(60, 70.0)]


def test_a_server_that_ends_watches_at_once_is_asked_once_a_second():
    found = follower(Objects())
    found._watched("1")
    assert found._closing.seconds == [1.0]


def test_pauses_after_errors_double_from_one_second_to_thirty(monkeypatch):
    monkeypatch.setattr(object_watch.random, "uniform", lambda least, most: most)
    found = follower(Objects(), 7)
    monkeypatch.setattr(found, "_tried", lambda: None)
    found._run()
    assert found._closing.seconds == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


@pytest.mark.parametrize(("lasted", "pause"), [(29.9, 4.0), (30.1, 1.0)])
def test_pauses_begin_anew_after_half_a_minute_without_an_error(monkeypatch, lasted, pause):
    clock = iter([0.0, 0.0, 0.0, lasted])
    monkeypatch.setattr(object_watch, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(object_watch.random, "uniform", lambda least, most: most)
    found = follower(Objects(), 2)
    monkeypatch.setattr(found, "_tried", lambda: None)
    found._run()
    assert found._closing.seconds == [2.0, pause]


@pytest.mark.parametrize(
    ("status", "condition"), [(403, "forbidden"), (404, "absent"), (500, "failing")]
)
def test_a_kind_that_may_not_be_read_is_asked_for_every_five_minutes(status, condition):
    found = follower(Objects([Answer(status, {})] * 2), 1)
    found._run()
    assert found.held.condition == condition
    assert found._closing.seconds == ([300.0] if status != 500 else found._closing.seconds)
    assert found._closing.seconds[0] <= 2.0 or status != 500


@pytest.mark.parametrize(("status", "stale"), [(410, True), (500, False)])
def test_one_status_says_that_a_version_is_too_old(status, stale):
    with pytest.raises(object_watch.StaleVersionError if stale else NoAnswerError):
        follower(Objects(events=[Answer(status, {})]))._watched("1")


def test_twenty_thousand_objects_of_a_kind_are_held_and_8192_ends():
    held = object_watch.Held()
    for number in range(20_001):
        held.put(str(number), number)
    assert len(held.values) == 20_000
    items = [{"uid": str(number)} for number in range(20_001)]
    api = Objects([Answer(200, {"items": items, "metadata": {}})])
    listed = follower(api)
    listed._listed()
    assert len(listed.held.values) == 20_000
    held.replace({})
    assert len(held.gone) == 8192
