"""Who makes room for whom among connections, and who never does."""

from __future__ import annotations

import contextlib
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope_agent.web import connection_slots
from rankscope_agent.web.connection_slots import Slots
from rankscope_agent.web.refusals import REFUSAL, Refusals

MAX_KEPT = 32

MOST, MOST_PER_PEER = 4, 3


class Room:
    """Places with sockets whose other ends show who was sent away."""

    def __init__(self, stack, most=MOST, most_per_peer=MOST_PER_PEER):
        self._stack = stack
        self._ends = {}
        self.slots = Slots(most, most_per_peer)

    def acquire(self, peer):
        near, far = socket.socketpair()
        self._stack.enter_context(near)
        far = self._stack.enter_context(far)
        slot = self.slots.acquire(peer, near)
        if slot is not None:
            self._ends[slot] = far
        return slot

    def sent_away(self, slot):
        far = self._ends[slot]
        far.setblocking(False)
        try:
            return far.recv(1) == b""
        except BlockingIOError:
            return False


@pytest.fixture
def room():
    with contextlib.ExitStack() as stack:
        yield Room(stack)


def test_newcomers_take_free_places_and_then_that_of_the_longest_wait(room):
    first, second, third, other = (room.acquire(peer) for peer in "aaab")
    assert not any(map(room.sent_away, (first, second, third, other)))
    newcomer = room.acquire("c")
    assert [room.sent_away(p) for p in (first, second, third, other, newcomer)] == [
        *(True, False, False, False, False)
    ]
    assert room.slots.answer(newcomer)
    assert not room.slots.answer(first)


def test_who_holds_most_makes_room_however_long_others_wait(room):
    longest, *received = (room.acquire(peer) for peer in "baaa")
    room.acquire("c")
    assert room.sent_away(received[0])
    assert not room.sent_away(longest)


def test_who_asked_before_is_sent_away_after_those_who_never_did(room):
    known, unknown, *_ = (room.acquire(peer) for peer in "abcd")
    assert room.slots.answer(known)
    room.slots.wait(known)
    room.acquire("e")
    assert room.sent_away(unknown)
    assert not room.sent_away(known)


def test_an_answer_is_never_cut_off(room):
    answered = [room.acquire(peer) for peer in "aabb"]
    assert all(map(room.slots.answer, answered))
    assert room.acquire("c") is None
    assert not room.slots.evict_one()
    room.slots.wait(answered[2])
    assert not room.slots.evict_one()
    assert room.acquire("c") is not None
    assert list(map(room.sent_away, answered)) == [False, False, True, False]


def test_for_want_of_a_descriptor_one_goes_and_never_the_last(room):
    first, second = (room.acquire(peer) for peer in "ab")
    assert room.slots.evict_one()
    assert room.sent_away(first)
    assert not room.slots.evict_one()
    assert not room.sent_away(second)


def test_an_address_at_its_own_limit_makes_room_for_itself(room):
    answered, waiting, _ = (room.acquire("a") for _ in range(3))
    room.slots.answer(answered)
    assert room.acquire("a") is not None
    assert room.sent_away(waiting)
    assert not room.sent_away(answered)


def test_places_come_back_once_each(room):
    received = [room.acquire(peer) for peer in "abcd"]
    newcomer = room.acquire("e")
    for slot in received:
        room.slots.release(slot)
    assert not room.sent_away(newcomer)
    again = [room.acquire(peer) for peer in "fgh"]
    assert not any(map(room.sent_away, [newcomer, *again]))
    room.acquire("i")
    assert room.sent_away(newcomer)


def test_threads_that_have_yet_to_end_are_bounded_as_well(room, monkeypatch):
    monkeypatch.setattr(connection_slots, "MAX_ENDING", 2)
    entered = [room.acquire(peer) for peer in "abcd" + "ef"]
    assert room.acquire("g") is None
    room.slots.release(entered[0])  # its thread has ended
    assert room.acquire("g") is not None


def test_a_connection_that_lost_its_place_in_a_handshake_is_not_served(room):
    first, *_ = (room.acquire(peer) for peer in "abcd")
    room.acquire("e")
    left, right = socket.socketpair()
    with left, right:
        assert not room.slots.secured(first, left)


@given(st.lists(st.tuples(st.sampled_from("eawl"), st.integers(0, 7)), max_size=60))
def test_whatever_comes_the_limits_hold_and_answers_are_left_alone(steps):
    with contextlib.ExitStack() as stack:
        room = Room(stack)
        known, answering = [], set()
        for step, number in steps:
            if step == "e":
                entered = room.acquire("abc"[number % 3])
                known += [entered] if entered else []
            elif known:
                slot = known[number % len(known)]
                if step == "a" and room.slots.answer(slot):
                    answering.add(slot)
                elif step == "w":
                    room.slots.wait(slot)
                    answering.discard(slot)
                elif step == "l":
                    known.remove(slot)
                    answering.discard(slot)
                    room.slots.release(slot)
            inside = [slot for slot in known if not slot.evicted]
            assert len(inside) <= MOST
            assert all([p.peer for p in inside].count(peer) <= MOST_PER_PEER for peer in "abc")
            assert not any(slot.evicted for slot in answering)
            assert all(room.sent_away(slot) for slot in known if slot.evicted)


def test_who_is_turned_away_reads_why_whether_it_has_asked_or_not():
    refusals = Refusals()
    with contextlib.ExitStack() as stack:
        ends = []
        for _ in range(MAX_KEPT + 1):
            near, far = socket.socketpair()
            ends.append(stack.enter_context(far))
            refusals.add(near)
        assert {end.recv(len(REFUSAL)) for end in ends} == {REFUSAL}
        assert {end.recv(1) for end in ends} == {b""}
        ends[-1].send(b"open still")
        with pytest.raises(BrokenPipeError):
            ends[0].send(b"closed, because there were more than are kept")
        refusals.close()
        with pytest.raises(BrokenPipeError):
            ends[-1].send(b"closed")


def test_who_is_turned_away_is_let_go_after_a_while(monkeypatch):
    refusals = Refusals()
    near, far = socket.socketpair()
    with far:
        refusals.add(near)
        refusals.sweep()
        far.send(b"open still")
        monkeypatch.setattr("rankscope_agent.web.refusals.KEPT_SECONDS", 0.0)
        refusals.sweep()
        with pytest.raises(BrokenPipeError):
            far.send(b"closed")
        gone, there = socket.socketpair()
        there.close()
        refusals.add(gone)
        assert gone.fileno() == -1
