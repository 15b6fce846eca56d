"""The last that is still taken and the first that is not, of each limit on lines about steps."""

from __future__ import annotations

import itertools

import pytest

from rankscope_agent.sources.nccl_log.step_lines import collectives
from rankscope_agent.sources.nccl_log.step_lines.collectives import CollectivePeriod, repeat
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_lines.prefix import words_begin
from rankscope_agent.sources.nccl_log.step_lines.trainers import TrainerLines
from rankscope_agent.sources.nccl_log.step_lines.values import NCCL, rate
from test_collective_period import coll


def test_8192_collectives_and_4096_shapes_are_remembered():
    period = CollectivePeriod()

    def feed(comm, count):
        text = coll("AllReduce", count, 1, comm=f"0x{comm:x}").encode()
        assert period.feed(text, text.index(collectives.MARK), None)

    for number in range(8200):
        feed(1, number % 4096)
    assert (len(period._order), len(period._shapes)) == (8192, 4096)
    feed(1, 5000)
    assert len(period._shapes) == 1


@pytest.mark.parametrize(("others", "followed"), [(4095, 1), (4096, 2)])
def test_a_process_has_ended_after_4096_collectives_of_others(others, followed):
    period = CollectivePeriod()
    for pid, count in ((1, 1), (2, others)):
        text = coll("AllReduce", 7, 1, pid=pid).encode()
        for _ in range(count):
            period.feed(text, text.index(collectives.MARK), None)
    assert period._process.endswith(b":%d" % followed)


def stamped_period(records_, seconds, *, stamped=True):
    """Return the period of so many collectives, four a step, over some seconds."""
    period = CollectivePeriod()
    for number in range(records_):
        at = seconds * number / (records_ - 1)
        minutes, rest = divmod(at, 60)
        stamp = f"2026-11-21T02:{int(minutes):02d}:{rest:09.6f}000Z stdout F " if stamped else ""
        text = (stamp + coll("AllReduce", number % 4, 1)).encode()
        period.feed(text, text.index(collectives.MARK), 1000.0 + at)
    return period.step_seconds()


@pytest.mark.parametrize(
    ("records_", "seconds", "stamped", "known"),
    [
        (1024, 20.0, True, True),
        (1023, 20.0, True, False),
        (200, 60.1, True, True),
        (200, 59.9, True, False),
        (1024, 30.1, False, True),
        (1024, 29.9, False, False),
    ],
)
def test_a_period_is_believed_after_many_collectives_or_a_minute(records_, seconds, stamped, known):
    assert (stamped_period(records_, seconds, stamped=stamped) is not None) is known


@pytest.mark.parametrize(("kinds", "looked_at"), [(64, 64), (70, 64)])
def test_64_distances_are_looked_at(kinds, looked_at):
    order = [
        place
        for distance in range(1, kinds + 1)
        for place in itertools.chain.from_iterable(
            [distance, *([1000] * (distance - 1))] for _ in range(4)
        )
    ]
    assert len(collectives._commonest_distances(order)) == looked_at


@pytest.mark.parametrize(("repeats", "period"), [(4, 3), (3, None)])
def test_a_period_repeats_itself_four_times(repeats, period):
    assert repeat([0, 1, 2] * repeats) == period


TOOK = "elapsed time per iteration (ms)"
MEGATRON = " iteration {step}/ {total} | " + TOOK + ": {took} |{more} learning rate: 1 |"


def megatron_step(step=5, total=10, took="512.0", before="", more=""):
    line_ = before + MEGATRON.format(step=step, total=total, took=took, more=more)
    log = StepLog()
    log.feed((line_ + "\n").encode(), 1.0, None)
    return log.facts.frameworks.get("megatron")


@pytest.mark.parametrize(
    ("of_line", "known"),
    [
        ({"step": 10**12, "total": 10**12}, True),
        ({"step": 10**12 + 1, "total": 10**13}, False),
        ({"took": "86400000"}, True),
        ({"took": "86400001"}, False),
        ({"more": " a: 1 |" * 62}, True),
        ({"more": " a: 1 |" * 63}, False),
        ({"more": "x" * 8000 + ": 1 |"}, True),
        ({"more": "x" * 8192 + ": 1 |"}, False),
    ],
)
def test_lines_about_steps_have_limits(of_line, known):
    assert (megatron_step(**of_line) is not None) is known


@pytest.mark.parametrize(("value", "known"), [(1e12, 1e12), (1.1e12, None)])
def test_rates_are_at_most_a_trillion(value, known):
    assert rate(value) == known


@pytest.mark.parametrize(("length", "begins"), [(510, True), (511, False)])
def test_prefixes_of_a_line_are_looked_for_in_512_bytes(length, begins):
    tags = [b"[" + b"a" * 198 + b"]", b"[" + b"a" * 198 + b"]"]
    tags += [b"[" + b"a" * (length - 400) + b"]"]
    assert (words_begin(b"".join(tags) + b"x") == length + 2) is begins


@pytest.mark.parametrize(("length", "known"), [(4096, True), (4097, False)])
def test_what_the_trainer_logs_has_4096_bytes_at_most(length, known):
    items = b"".join(b", '%s': 1" % (b"x" * 50) for _ in range(70))
    words = b"{'loss': 1.25, 'learning_rate': 1e-05, 'epoch': 0.5" + items
    words += b", '%s': 1}" % (b"y" * (length - len(words) - 8))
    assert len(words) == length
    assert (TrainerLines().read_dictionary(words) is not None) is known


def test_votes_of_16_bars_are_counted():
    seen = TrainerLines()
    words = b"{'loss': 1.25, 'learning_rate': 1e-05, 'epoch': 0.5}"
    for total in range(1, 20):
        seen._open_total = total
        seen.read_dictionary(words)
    assert len(seen.votes) == 16


def test_periods_are_worked_out_every_five_seconds():
    log = StepLog()
    found = []
    for now in (100.0, 104.9, 105.1):
        log.feed(coll("AllReduce", 7, 1).encode(), now, None)
        log.sum_up(now)
        found.append(log.facts.frameworks[NCCL].lines)
    assert found == [1, 1, 3]
