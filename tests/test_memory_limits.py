"""How often what a watch knows is saved, and how long what was saved is waited for."""

from __future__ import annotations

import pytest

from rankscope_analyzers.watch import memory
from rankscope_analyzers.watch.memory import Memory, NoWatch
from rankscope_analyzers.watch.store import UnreachableError
from standing_clock import Clock


class Store:
    """Counts what is written; is read once it can be reached."""

    def __init__(self, *, reachable=True):
        self.reachable, self.writes = reachable, 0

    def read(self):
        if not self.reachable:
            raise UnreachableError("no route to host")

    def write(self, parts, now):
        self.writes += 1
        return 0


@pytest.fixture
def clock(monkeypatch):
    standing = Clock()
    monkeypatch.setattr(memory, "time", standing)
    return standing


@pytest.mark.parametrize(("later", "writes"), [(299.9, 1), (300.0, 2)])
def test_what_does_not_change_is_saved_every_five_minutes(clock, later, writes):
    store = Store()
    known = Memory(store, lambda _: None)
    for seconds in (0.0, later):
        clock.now += seconds
        known.begin(NoWatch(), None)
        known.end(NoWatch(), None, changed=False)
    assert store.writes == writes


@pytest.mark.parametrize(("later", "awaited"), [(59.9, True), (60.0, False)])
def test_what_was_saved_and_cannot_be_read_is_awaited_for_a_minute(clock, later, awaited):
    known = Memory(Store(reachable=False), lambda _: None)
    known.begin(NoWatch(), None)
    clock.now += later
    assert known.awaited is awaited
