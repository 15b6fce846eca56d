"""Checkpoints, tokens and shares of samples across restarts of the agent."""

from __future__ import annotations

import pytest

from collected_page import CREATED, CREATED_NS
from following_agents import JOB, NEXT, Node
from rankscope_agent.contract.metrics import job_work, reported
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import FLAG_SAMPLED
from rankscope_agent.sources.training.reported import Signal
from ring_writer import NS, RingWriter, SignalWriter, SpanWriter


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_checkpoints_count_once_and_those_that_were_open_when_they_end(node):
    spans, writer = SpanWriter(node.folder), RingWriter(node.folder)
    writer.step()
    first = node.agent()
    spans.write(1, start_ns=CREATED_NS + NS, duration_ns=2 * NS, outcome=1)
    spans.write(2, start_ns=CREATED_NS + 2 * NS, flags=1)
    spans.write(3, start_ns=CREATED_NS + 4 * NS, duration_ns=NS, outcome=2)
    node.page(first)
    node.ended(first)
    second = node.agent()
    page = node.page(second)
    assert page.rank(metrics.CHECKPOINT_WRITES) == 2
    assert page.rank(metrics.CHECKPOINT_WRITE_FAILURES) == 1
    assert page.rank(metrics.CHECKPOINT_BLOCKED) == 3.0
    assert page.rank(metrics.CHECKPOINT_LAST_SUCCESS) == CREATED + 3
    spans.write(2, start_ns=CREATED_NS + 2 * NS, duration_ns=6 * NS, outcome=1, flags=1)
    page = node.page(second)
    assert page.rank(metrics.CHECKPOINT_WRITES) == 3
    assert page.rank(metrics.CHECKPOINT_BLOCKED) == 9.0
    assert page.rank(metrics.CHECKPOINT_LAST_SUCCESS) == CREATED + 8
    writer.end()


def test_checkpoints_of_rings_that_are_gone_stay_counted(node):
    spans, writer = SpanWriter(node.folder), RingWriter(node.folder)
    writer.step()
    first = node.agent()
    spans.write(1, start_ns=CREATED_NS + NS, duration_ns=2 * NS, outcome=1)
    node.page(first)
    node.ended(first)
    for gone in (writer.path, spans.path):
        gone.unlink()
    writer.end()
    again = RingWriter(node.folder, "2.ring", **NEXT)
    again.step()
    page = node.page(node.agent())
    assert page.rank(metrics.CHECKPOINT_WRITES) == 1
    assert page.rank(metrics.CHECKPOINT_WRITE_SECONDS) == 2.0
    assert page.rank(metrics.CHECKPOINT_LAST_SUCCESS) == CREATED + 3
    again.end()


def test_where_steps_begin_anew_checkpoints_and_tokens_do_as_well(node):
    """A checkpoint's share of a rank's time is the quotient of two totals."""
    spans, writer = SpanWriter(node.folder), RingWriter(node.folder)
    signals = SignalWriter(node.folder)
    writer.step(40)
    spans.write(1, start_ns=CREATED_NS + NS, duration_ns=2 * NS, outcome=1)
    signals.write({Signal.TOKENS: 5000.0})
    agent = node.agent()
    page = node.page(agent)
    assert page.rank(metrics.CHECKPOINT_WRITES) == 0
    assert page.rank(metrics.CHECKPOINT_BLOCKED) == 0.0
    assert page.rank(metrics.CHECKPOINT_LAST_SUCCESS) == CREATED + 3
    assert page.rank(reported.TOKENS) is None
    spans.write(2, start_ns=CREATED_NS + 4 * NS, duration_ns=NS, outcome=1)
    signals.write({Signal.TOKENS: 5300.0})
    page = node.page(agent)
    assert page.rank(metrics.CHECKPOINT_WRITES) == 1
    assert page.rank(metrics.CHECKPOINT_BLOCKED) == 1.0
    assert page.rank(reported.TOKENS) == page.value(job_work.JOB_TOKENS, JOB) == 300
    assert node.page(agent).rank(reported.TOKENS) == 300
    writer.end()


def test_tokens_of_earlier_processes_and_of_ranks_that_do_not_come_back_stay_counted(node):
    writers = []
    for rank, tokens in ((0, 100.0), (1, 40.0)):
        name, pid = f"{rank}", 100 + rank
        SignalWriter(node.folder, f"{name}.sig", pid=pid).write({Signal.TOKENS: tokens})
        writers.append(RingWriter(node.folder, f"{name}.ring", rank=rank, pid=pid))
        writers[-1].step()
    first = node.agent()
    assert node.page(first).value(job_work.JOB_TOKENS, JOB) == 140
    node.ended(first)
    for path in node.folder.glob("*.[rs]i*g"):
        path.unlink()
    SignalWriter(node.folder, "2.sig", **NEXT).write({Signal.TOKENS: 7.0})
    again = RingWriter(node.folder, "2.ring", **NEXT)
    again.step()
    page = node.page(node.agent())
    assert page.rank(reported.TOKENS) == 107
    assert page.value(job_work.JOB_TOKENS, JOB) == 147
    assert page.rank(metrics.STEPS, 1) is None, "a rank that is gone has no series"
    for writer in (*writers, again):
        writer.end()


def test_steps_between_samples_go_on_with_the_shares_of_a_sample_that_was_overwritten(node):
    writer = RingWriter(node.folder)
    first = node.agent()
    writer.step(flags=2 | FLAG_SAMPLED)
    for _ in range(40):
        writer.step(compute_ns=-1, sync_ns=-1, flags=FLAG_SAMPLED)
        node.page(first)
    node.ended(first)
    second = node.agent()
    assert node.page(second).rank(metrics.COMPUTE_SECONDS) == pytest.approx(41 * 0.06)
    writer.step(compute_ns=-1, sync_ns=-1, flags=FLAG_SAMPLED)
    assert node.page(second).rank(metrics.COMPUTE_SECONDS) == pytest.approx(42 * 0.06)
    writer.end()


@pytest.mark.parametrize("ended", [True, False])
def test_tokens_of_more_processes_than_are_told_apart_count_once(node, ended):
    """A probe leaves the rings of 16 ended processes, which each agent opens again."""
    writers = []
    for number in range(12):
        process = {"pid": 100 + number, "created_unix_ns": CREATED_NS + number * NS}
        SignalWriter(node.folder, f"{number}.sig", **process).write({Signal.TOKENS: 100.0})
        writers.append(RingWriter(node.folder, f"{number}.ring", **process))
        writers[-1].step()
    for writer in writers[:-1] if ended else ():
        writer.end()
    for _ in range(3):
        agent = node.agent()
        pages = [node.page(agent, 1.0) for _ in range(3)]
        assert [page.rank(reported.TOKENS) for page in pages] == [1200, 1200, 1200]
        node.ended(agent)
    for writer in writers[-1:] if ended else writers:
        writer.end()


def test_when_something_was_last_counted_stays_known(node):
    """Diagnoses tell how long ago losses became NaN, long after the last one that did."""
    event = (reported.TRAINING_EVENT, JOB, "0", "loss_not_finite")
    signals, writer = SignalWriter(node.folder), RingWriter(node.folder)
    writer.step()
    at = CREATED_NS + 5 * NS
    signals.write({Signal.LOSSES: 9.0, Signal.NOT_FINITE: 2.0}, unix_ns=at)
    first = node.agent()
    assert node.page(first).value(*event) == at / NS
    node.ended(first)
    second = node.agent()
    assert node.page(second).value(*event) == at / NS
    signals.write({Signal.LOSSES: 9.0, Signal.NOT_FINITE: 3.0}, unix_ns=at + NS)
    assert node.page(second).value(*event) == at / NS + 1
    writer.end()
