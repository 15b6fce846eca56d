"""Totals across restarts of the agent: nothing counts twice, and nothing is lost without need."""

from __future__ import annotations

import errno
import json
import logging
import os

import pytest

from collected_page import CREATED_NS
from following_agents import JOB, NEWEST, NEXT, Node, count, steps, write_read
from rankscope_agent.contract.metrics import reported
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.training.read_turns import ReadTurns
from rankscope_agent.sources.training.reported import Signal
from ring_writer import NS, RingWriter, SignalWriter, SpanWriter


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_killed_agent_is_continued_from_what_it_had_written(node):
    writer = RingWriter(node.folder, capacity=64)
    first = node.agent()
    page = write_read(node, first, writer, 120)
    assert steps(page) == (120, 12.0)
    writer.step(3)
    assert steps(node.page(first)) == (123, 12.3), "shown, and not written any more"
    writer.step(2)
    second = node.agent()
    page = node.page(second)
    assert steps(page) == (125, 12.5)
    assert count(page) == 125
    assert page.value(metrics.JOB_SAMPLES, JOB) == page.rank(metrics.SAMPLES) == 125 * 8
    assert page.rank(metrics.RECORDS_LOST) == 0
    writer.step()
    assert steps(node.page(second)) == (126, 12.6)
    writer.end()


def test_without_what_was_counted_a_ring_that_lacks_records_begins_with_its_newest_one(node):
    writer = RingWriter(node.folder)
    writer.step(40)
    agent = node.agent()
    page = node.page(agent)
    assert steps(page) == NEWEST
    assert count(page) == 1
    assert page.rank(metrics.LAST_STEP) == 39, "what it did last is known all the same"
    assert page.rank(metrics.LAST_STEP_SECONDS) == 0.1
    writer.step(3)
    page = node.page(agent)
    assert steps(page) == (4, 0.4)
    assert count(page) == 4
    writer.end()


def test_a_job_begins_anew_as_a_whole(node):
    whole = RingWriter(node.folder, "0.ring", rank=0)
    lacking = RingWriter(node.folder, "1.ring", rank=1)
    whole.step(10)
    lacking.step(20)
    page = node.page(node.agent())
    assert (steps(page, 0), steps(page, 1), count(page)) == (NEWEST, NEWEST, 2)
    for writer in (whole, lacking):
        writer.end()


def test_a_ring_with_all_of_its_records_counts_in_full(node):
    writer = RingWriter(node.folder)
    writer.step(16)
    page = node.page(node.agent())
    assert steps(page) == (16, 1.6)
    writer.end()


def test_of_torchruns_attempts_all_must_have_left_their_rings(node):
    again = RingWriter(node.folder, "2.ring", attempt=1, **NEXT)
    again.step(3)
    assert steps(node.page(node.agent())) == NEWEST
    before = RingWriter(node.folder, "1.ring")
    before.step(4)
    before.end()
    node.state.unlink()
    assert steps(node.page(node.agent())) == (7, 0.7)
    again.end()


def test_a_ring_that_began_after_the_agent_counts_in_full_however_much_it_has_lost(node):
    agent = node.agent()
    node.page(agent)
    late = RingWriter(node.folder, created_unix_ns=round((node.clock.now + 1) * NS))
    late.step(40, start_unix_ns=round((node.clock.now + 2) * NS))
    assert steps(node.page(agent, 5.0))[0] == 16
    late.end()


@pytest.mark.parametrize(("seconds", "counted"), [(1.0, 16), (-1.0, 1)])
def test_a_ring_that_began_after_the_end_of_the_earlier_agent_counts_in_full(
    node, seconds, counted
):
    first = node.agent()
    node.page(first)
    node.ended(first)
    began = node.clock.now + seconds
    writer = RingWriter(node.folder, created_unix_ns=round(began * NS))
    writer.step(40, start_unix_ns=round(began * NS))
    node.clock.now += 100.0
    assert steps(node.page(node.agent()))[0] == counted
    writer.end()


def test_an_agent_killed_at_once_may_have_shown_more_than_the_one_that_ended_before_it(node):
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 40)
    node.ended(first)
    second = node.agent()
    writer.step(5)
    assert steps(node.page(second))[0] == 45
    writer.step(2)
    assert steps(node.page(second))[0] == 47
    writer.end()
    writer.path.unlink()
    again = RingWriter(node.folder, "2.ring", **NEXT)
    again.step(5)
    assert steps(node.page(node.agent())) == NEWEST
    again.end()


def test_an_agent_that_ended_is_continued_although_its_rings_are_gone(node):
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 40)
    node.ended(first)
    writer.end()
    writer.path.unlink()
    again = RingWriter(node.folder, "2.ring", **NEXT)
    again.step(5)
    page = node.page(node.agent())
    assert steps(page) == (45, 4.5)
    assert count(page) == 45
    again.end()


def test_a_killed_agent_whose_ring_is_gone_may_have_shown_more_so_that_totals_begin_anew(
    node, caplog
):
    caplog.set_level(logging.INFO)
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 120)
    writer.step(5)
    assert steps(node.page(first))[0] == 125
    writer.end()
    writer.path.unlink()
    again = RingWriter(node.folder, "2.ring", **NEXT)
    again.step(5)
    assert steps(node.page(first))[0] == 130
    second = node.agent()
    page = node.page(second)
    assert (steps(page), count(page)) == (NEWEST, 1), "not 120: it would be an increase by 120"
    assert "totals of job team/job begin anew" in caplog.text
    again.step()
    assert steps(node.page(second)) == (2, 0.2)
    again.end()


def test_a_killed_agent_may_have_counted_what_a_ring_that_it_did_not_write_down_has_lost(node):
    writer = RingWriter(node.folder, capacity=64)
    first = node.agent()
    write_read(node, first, writer, 120)
    again = RingWriter(node.folder, "2.ring", **NEXT)
    again.step(15)
    assert steps(node.page(first))[0] == 135
    again.step(5)
    second = node.agent()
    page = node.page(second)
    assert page.rank(metrics.STEPS) == count(page) == 2, "not 121: it would be an increase by 121"
    for ring in (writer, again):
        ring.end()


def test_a_killed_agent_whose_ring_was_overwritten_since_begins_anew(node):
    writer = RingWriter(node.folder)
    write_read(node, node.agent(), writer, 120)
    writer.step(40)
    assert steps(node.page(node.agent())) == NEWEST
    writer.end()


def test_records_that_were_overwritten_between_two_agents_are_lost(node):
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 40)
    node.ended(first)
    writer.step(20)
    page = node.page(node.agent())
    assert steps(page) == (56, 5.6)
    assert page.rank(metrics.RECORDS_LOST) == 4
    writer.end()


def test_a_ring_of_an_ended_process_counts_once(node):
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 40)
    writer.end()
    again = RingWriter(node.folder, "2.ring", **NEXT)
    again.step(5)
    assert steps(node.page(first, 20.0))[0] == 45
    again.step()
    second = node.agent()
    assert steps(node.page(second)) == (46, 4.6)
    assert steps(node.page(second, 1.0)) == (46, 4.6)
    again.end()


@pytest.mark.parametrize("ended", [True, False])
def test_an_agent_that_ends_before_it_finds_a_ring_leaves_what_it_was_left(node, ended):
    writer = RingWriter(node.folder, capacity=64)
    first = node.agent()
    write_read(node, first, writer, 120)
    aside = node.folder / "aside"
    writer.path.rename(aside)
    second = node.agent()
    node.page(second, 1.0)
    node.page(second, 11.0)
    if ended:
        node.ended(second)
    aside.rename(writer.path)
    writer.step(2)
    assert steps(node.page(node.agent())) == (122, 12.2)
    writer.end()


def test_an_agent_that_has_not_read_a_ring_leaves_its_totals_as_uncertain_as_they_were(node):
    writer = RingWriter(node.folder, capacity=64)
    write_read(node, node.agent(), writer, 120)
    writer.step(3)
    second = node.agent()
    second._turns = ReadTurns(lambda: 0.0, lambda: 0.0)
    second._turns.take = lambda *_: None
    node.page(second)
    node.ended(second)
    writer.end()
    writer.path.unlink()
    again = RingWriter(node.folder, "2.ring", **NEXT)
    again.step(5)
    assert steps(node.page(node.agent())) == NEWEST, "the first agent may have shown 123"
    again.end()


@pytest.mark.parametrize("ended", [True, False])
def test_rings_too_many_to_be_remembered_count_once(node, ended):
    writers = []
    for number in range(40):
        name, created_unix_ns = f"{number}.ring", CREATED_NS + number * NS // 10
        SpanWriter(
            node.folder, f"{number}.span", pid=100 + number, created_unix_ns=created_unix_ns
        ).write(1, start_ns=CREATED_NS + number * NS, duration_ns=NS, outcome=1)
        writers.append(
            RingWriter(node.folder, name, pid=100 + number, created_unix_ns=created_unix_ns)
        )
        writers[-1].step(10)
        if ended and number < 39:
            writers[-1].end()
    for written in (0, 10, 20):
        agent = node.agent()
        page = node.page(agent)
        assert steps(page)[0] == count(page) == 400 + written
        assert page.rank(metrics.CHECKPOINT_WRITES) == 40
        writers[-1].step(10)
        assert steps(node.page(agent))[0] == 410 + written
        node.ended(agent)
    for writer in writers[39:] if ended else writers:
        writer.end()


def test_a_ring_that_was_found_after_the_last_write_counts_although_it_is_the_older_one(node):
    """A rank's ring appears once it is complete, which may be after that of a younger process."""
    younger = RingWriter(node.folder, "1.ring", rank=1, pid=77, created_unix_ns=CREATED_NS + NS)
    younger.step(10)
    agent = node.agent()
    assert steps(node.page(agent), 1)[0] == 10
    older = RingWriter(node.folder, "0.ring", rank=0, created_unix_ns=CREATED_NS)
    older.step(10)
    assert steps(node.page(agent, 1.0), 0)[0] == 10
    younger.step(5)
    older.step(5)
    page = node.page(node.agent(), 1.0)
    assert [steps(page, rank)[0] for rank in (0, 1)] == [15, 15]
    assert count(page) == 30


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(("before", "rank"), [(50, 0), (50, 1), (100, 0)])
def test_an_earlier_run_of_the_job_that_was_forgotten_does_not_return(node, ended, before, rank):
    """Probes keep rings for a day, and jobs without a name of their own share one."""
    morning = RingWriter(node.folder, "1.ring", rank=rank, capacity=64)
    SignalWriter(node.folder, "1.sig").write({Signal.TOKENS: 500.0})
    first = node.agent()
    for _ in range(before // 50):
        morning.step(50)
        node.page(first, 1.0)
    morning.end()
    node.page(first, 20.0)
    assert steps(node.page(first, 700.0), rank) == (None, None)
    fields = {"pid": 77, "created_unix_ns": round(node.clock.now * NS)}
    SignalWriter(node.folder, "2.sig", **fields).write({Signal.TOKENS: 60.0})
    again = RingWriter(node.folder, "2.ring", capacity=64, **fields)
    for _ in range(12):
        again.step(1, start_unix_ns=round(node.clock.now * NS))
        page = node.page(first, 1.0)
    assert (steps(page)[0], count(page), page.rank(reported.TOKENS)) == (12, 12, 60)
    if ended:
        node.ended(first)
    for _ in range(2):
        agent = node.agent()
        page = node.page(agent)
        assert (steps(page)[0], count(page), page.rank(reported.TOKENS)) == (12, 12, 60)
        node.ended(agent)
    again.end()


def test_a_rank_that_was_dropped_does_not_return_to_what_an_earlier_agent_counted(node):
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 40)
    node.ended(first)
    second = node.agent()
    assert steps(write_read(node, second, writer, 40))[0] == 80
    second._jobs.clear()
    writer.step(2)
    page = node.page(second)
    assert steps(page)[0] == 2
    assert count(page) == 2
    writer.end()


def test_what_a_job_that_ended_long_ago_counted_is_forgotten(node):
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 40)
    node.ended(first)
    writer.end()
    writer.path.unlink()
    second = node.agent()
    node.page(second, 590.0)
    node.page(second, 20.0)
    assert json.loads(node.state.read_bytes().split(b"\n")[1])["jobs"] == {}


def test_what_was_read_before_a_failure_counts_once(node, monkeypatch):
    """A read that fails in the middle of a run ends the run for its ring."""
    writer = RingWriter(node.folder, capacity=512)
    first = node.agent()
    node.page(first)
    writer.step(240)
    long_reads, pread = [], os.pread

    def failing(descriptor, size, offset):
        long_reads.extend([size] if size > 1024 else [])
        if len(long_reads) == 2:
            raise OSError(errno.EIO, "failed")
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    assert steps(node.page(first))[0] == 32
    monkeypatch.undo()
    node.ended(first)
    page = node.page(node.agent())
    assert (steps(page), count(page)) == ((240, 24.0), 240)
    writer.end()
