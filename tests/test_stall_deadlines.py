"""Ranks that do not answer cost no other job its own, and it is said which were not asked."""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from flight_servers import dump, entry, serving
from rankscope_agent.sources.stalls import rank_queries, stall_source
from rankscope_agent.sources.stalls.rank_queries import LONGEST_SECONDS
from rankscope_agent.sources.stalls.stall_source import LOOK_SECONDS, StallSource
from test_stalls import NOW, quiet_ring, served, source

CLIENTS_WAIT_SECONDS = 10.0


class Silent:
    """A worker server that accepts connections and answers once it is let go."""

    def __init__(self):
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self._answer = served(dump(entry(1, round((NOW - 29) * 1e9), retired=False)))

    def __call__(self, connection, request):
        self.asked.set()
        assert self.may_answer.wait(60)
        self._answer(connection, request)


def in_thread(look, job_id):
    found = []
    thread = threading.Thread(target=lambda: found.append(look(job_id)), daemon=True)
    thread.start()
    return thread, found


@pytest.fixture
def patient(monkeypatch):
    """Ranks have a minute to answer, so that a busy machine changes nothing."""
    monkeypatch.setattr(rank_queries, "PULL_SECONDS", 60.0)


def test_a_look_ends_before_clients_stop_waiting_for_it():
    assert LONGEST_SECONDS < LOOK_SECONDS < 0.75 * CLIENTS_WAIT_SECONDS


def test_a_look_at_one_job_does_not_wait_for_ranks_of_another(tmp_path, patient):
    quiet_ring(tmp_path, "7-8.ring", job_id="hung")
    quiet_ring(tmp_path, "7-9.ring", job_id="other")
    silent, looks = Silent(), source(tmp_path)
    with serving(tmp_path / "7-8.sock", silent):
        hung, found = in_thread(looks.stalls, "hung")
        assert silent.asked.wait(60)
        (other,) = looks.stalls("other")
        assert (other.job_id, hung.is_alive()) == ("other", True)
        silent.may_answer.set()
        hung.join(60)
    ((late,),) = found
    assert late.groups


def test_a_rank_that_two_looks_want_is_asked_once(tmp_path, patient):
    quiet_ring(tmp_path, "7-8.ring")
    silent, looks = Silent(), source(tmp_path)
    with serving(tmp_path / "7-8.sock", silent) as asked:
        several = [in_thread(looks.stalls, job) for job in (None, "team/job")]
        assert silent.asked.wait(60)
        silent.may_answer.set()
        for thread, _ in several:
            thread.join(60)
    first, second = (found[0] for _, found in several)
    assert first == second
    assert Counter(one.split(b" ")[1] for one in asked)[b"/handler/"] == 2, "collectives and stack"


def test_ranks_for_which_there_is_no_time_say_so_and_are_asked_at_the_next_look(
    tmp_path, monkeypatch
):
    quiet_ring(tmp_path)
    looks = source(tmp_path)
    with serving(tmp_path / "7-8.sock", served(dump(entry(1, 1)))) as asked:
        monkeypatch.setattr(stall_source, "LOOK_SECONDS", 0.0)
        (left_out,) = looks.stalls(None)
        assert (left_out.asked, asked) == (False, [])
        assert "was not asked" in left_out.recorder
        assert "was not asked" in left_out.no_stack
        monkeypatch.setattr(stall_source, "LOOK_SECONDS", LOOK_SECONDS)
        (found,) = looks.stalls(None)
    assert (found.asked, found.recorder) == (True, "")


def test_no_more_ranks_are_asked_at_once_than_there_are_places(tmp_path, monkeypatch, patient):
    monkeypatch.setattr(rank_queries, "MAX_AT_ONCE", 1)
    quiet_ring(tmp_path, "7-8.ring", job_id="hung")
    quiet_ring(tmp_path, "7-9.ring", job_id="other")
    silent, looks = Silent(), source(tmp_path)
    with serving(tmp_path / "7-8.sock", silent):
        hung, _ = in_thread(looks.stalls, "hung")
        assert silent.asked.wait(60)
        monkeypatch.setattr(stall_source, "LOOK_SECONDS", LONGEST_SECONDS + 0.01)
        (other,) = looks.stalls("other")
        assert not other.asked
        silent.may_answer.set()
        hung.join(60)


def test_a_look_that_fails_keeps_no_other_from_looking(tmp_path, monkeypatch):
    def broken(_):
        raise OSError("no procfs")

    quiet_ring(tmp_path)
    looks = source(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(stall_source, "read_lock_holders", broken)
        with pytest.raises(OSError, match="no procfs"):
            looks.stalls(None)
    assert len(looks.stalls(None)) == 1


def ring(holder, rank):
    return SimpleNamespace(
        identity=SimpleNamespace(job_id=f"{holder}/job", rank=rank), created_unix_ns=1, of=holder
    )


def test_holders_take_turns_and_ranks_that_were_slow_come_last(tmp_path):
    rings = SimpleNamespace(holder=lambda one: (one.of, "pod"))
    looks = StallSource(rings, tmp_path)
    several = [*(ring("greedy", n) for n in range(4)), ring("team", 0)]

    def order():
        return [(one.of, one.identity.rank) for one in looks._in_turns(several)]

    assert order() == [
        ("greedy", 0),
        ("team", 0),
        *(("greedy", n) for n in (1, 2, 3)),
    ]
    for rank in (1, 0):
        looks._note(("greedy/job", rank, 1), SimpleNamespace(), 2.0)
    assert [rank for of, rank in order() if of == "greedy"] == [2, 3, 1, 0]
    looks._note(("greedy/job", 1, 1), SimpleNamespace(), 0.2)
    assert [rank for of, rank in order() if of == "greedy"] == [1, 2, 3, 0]


def test_slow_ranks_that_are_remembered_are_bounded(tmp_path):
    looks = StallSource(SimpleNamespace(), tmp_path)
    for rank in range(stall_source.MAX_SLOW + 5):
        looks._note(("job", rank, 1), SimpleNamespace(), 2.0)
    assert len(looks._slow) == stall_source.MAX_SLOW
    assert ("job", 4, 1) not in looks._slow
