"""Who of several watches holds the lease, whatever can and cannot be reached."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from rankscope_analyzers.watch.election import Election, LeaseError, LeaseRecord

LEASE_SECONDS = 30.0


@dataclass
class Server:
    """What the API server stores; it refuses writes that are not based on the newest version."""

    now: float = 1000.0
    stored: LeaseRecord | None = None
    version: int = 0

    def clock(self) -> float:
        return self.now

    def write(self, holder: str) -> None:
        self.version += 1
        before = self.stored
        changes = 0 if before is None else before.transitions + (holder not in ("", before.holder))
        self.stored = LeaseRecord(holder, self.now, self.version, changes, 0.0)


@dataclass
class Way:
    """One watch's way to the server: it may be closed, or lose answers to writes that were made."""

    server: Server
    closed: bool = False
    reads_alone: bool = False
    loses_answers: bool = False

    def read(self) -> LeaseRecord | None:
        if self.closed:
            raise LeaseError("no route to host")
        return self.server.stored

    def create(self, holder: str) -> LeaseRecord | None:
        return self._write(None, holder)

    def replace(self, read: LeaseRecord, holder: str) -> LeaseRecord | None:
        return self._write(read.stored, holder)

    def _write(self, based_on: object, holder: str) -> LeaseRecord | None:
        if self.reads_alone:
            raise LeaseError("403 Forbidden")
        newest = self.server.stored.stored if self.server.stored else None
        if based_on != newest:
            return None
        self.server.write(holder)
        if self.loses_answers:
            raise LeaseError("timed out")
        return self.server.stored


@pytest.fixture
def server() -> Server:
    return Server()


class Watch(Election):
    def __init__(self, server: Server, name: str) -> None:
        self.way = Way(server)
        super().__init__(self.way, name, server.clock)

    def tries(self) -> bool:
        """Make an attempt; False where the server could not be reached."""
        try:
            self.attempt()
        except LeaseError:
            return False
        return True


@pytest.fixture
def pair(server: Server) -> tuple[Watch, Watch]:
    """Two watches, of which the first one holds the lease, and the second one knows."""
    one, two = Watch(server, "one"), Watch(server, "two")
    assert one.tries()
    assert two.tries()
    assert (one.holds, two.holds, two.holder) == (True, False, "one")
    return one, two


def test_a_lease_that_is_renewed_is_not_taken(server, pair):
    one, two = pair
    for _ in range(100):
        server.now += LEASE_SECONDS / 2
        one.tries()
        two.tries()
        assert (one.holds, two.holds) == (True, False)


def test_a_lease_that_nobody_renews_is_taken_when_it_has_run_out(server, pair):
    _, two = pair
    server.now += LEASE_SECONDS - 0.1
    two.tries()
    assert not two.holds
    server.now += 0.1
    two.tries()
    assert two.holds


def test_it_runs_out_by_the_clock_of_who_waits(server):
    """The holder's clock may stand anywhere: only that its time changes shows that it lives."""
    server.stored = LeaseRecord("one", -1e9, 0, 0, 0.0)
    two = Watch(server, "two")
    two.tries()
    assert not two.holds


def test_a_deposed_holder_falls_silent_as_soon_as_it_reads_another(server, pair):
    one, _ = pair
    server.write("two")
    one.tries()
    assert (one.holds, one.holder) == (False, "two")


def test_a_holder_whose_renewal_meets_another_write_reads_again_at_once(server, pair, monkeypatch):
    one, _ = pair
    before = server.stored
    server.write("two")
    answers = [before, server.stored]
    monkeypatch.setattr(one.way, "read", lambda: answers.pop(0))
    one.attempt()
    assert (one.holds, answers) == (False, [])


def test_a_server_that_answers_nobody_ends_nothing(server, pair):
    one, two = pair
    one.way.closed = two.way.closed = True
    for _ in range(720):
        server.now += 5
        assert not one.tries()
        assert not two.tries()
    assert (one.holds, two.holds) == (True, False)
    one.way.closed = two.way.closed = False
    assert two.tries()  # it asks first, and the lease has been old for an hour
    assert one.tries()
    assert [one.holds, two.holds].count(True) == 1


def test_a_holder_that_alone_is_cut_off_speaks_on_until_it_reads_the_other(server, pair):
    one, two = pair
    one.way.closed = True
    server.now += LEASE_SECONDS
    assert not one.tries()
    two.tries()
    assert (one.holds, two.holds) == (True, True)
    one.way.closed = False
    one.tries()
    assert (one.holds, two.holds) == (False, True)


def test_who_may_read_but_not_write_stays_what_it_reads_that_it_is(server, pair):
    """Nobody else may take it from who may not renew it, where rights are those of all."""
    one, two = pair
    one.way.reads_alone = two.way.reads_alone = True
    server.now += LEASE_SECONDS
    assert not one.tries()
    assert not two.tries()
    assert (one.holds, two.holds) == (True, False)
    server.write("three")
    assert one.tries()
    assert not one.holds


def test_a_write_whose_answer_was_lost_is_found_at_the_next_attempt(server):
    one = Watch(server, "one")
    one.way.loses_answers = True
    assert not one.tries()
    assert not one.holds
    one.way.loses_answers = False
    one.tries()
    assert one.holds


def test_a_lease_that_is_given_back_needs_not_run_out(server, pair):
    one, two = pair
    one.release()
    assert (one.holds, server.stored.holder) == (False, "")
    two.tries()
    assert two.holds
    one.release()  # it is not its own any more
    assert server.stored.holder == "two"


def test_a_lease_that_is_gone_is_made_again_by_one(server, pair):
    one, two = pair
    server.stored = None
    two.tries()
    one.tries()
    assert (one.holds, two.holds) == (False, True)


def all_read(watches):
    for each in watches:
        each.way.closed = each.way.loses_answers = False
        each.tries()


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_one_speaks_once_all_have_read(seed):
    chance, server = random.Random(seed), Server()
    watches = [Watch(server, f"watch-{n}") for n in range(3)]
    for _ in range(400):
        one = chance.choice(watches)
        one.way.closed = chance.random() < 0.2
        one.way.loses_answers = chance.random() < 0.1
        if chance.random() < 0.02:
            server.stored = None
        server.now += chance.choice((0, 1, 5, LEASE_SECONDS))
        one.tries()
        if chance.random() < 0.1:
            all_read(watches)
            server.now += LEASE_SECONDS
            all_read(watches)  # whoever is gone is replaced
            all_read(watches)  # and hears of it
            (holder,) = (each for each in watches if each.holds)
            assert server.stored.holder == holder._identity


def test_a_write_that_others_forestall_is_tried_three_times() -> None:
    reads: list[int] = []

    class Forestalled:
        def read(self) -> None:
            reads.append(1)

        def create(self, holder: str) -> None:
            return None

    election = Election(Forestalled(), "one", lambda: 0.0)
    election.attempt()
    assert len(reads) == 3
    assert not election.holds
