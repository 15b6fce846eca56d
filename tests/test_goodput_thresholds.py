"""What counts as an undisturbed step, and how long an account waits: at and beyond each limit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from goodput_records import end, run, table
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.account import Account, Look, _beginning, _complete
from rankscope_analyzers.goodput.executed import executed
from rankscope_analyzers.goodput.reference import Reference, Times

RANKS = 4
BEGIN = 1000.0


def steps(count, more=None, first=False):
    records = run(BEGIN, range(1, count + 1), *((more,) if more else ()), first=first)
    return executed(table(records), RANKS)


def reference(count, **more):
    found = Reference()
    found.add(steps(count, **more))
    return found


@pytest.mark.parametrize(
    ("spread", "noise"), [(0.005, 0.05), (0.02, 3 * 1.4826 * 0.02), (0.1, 0.25)]
)
def test_steps_differ_by_three_deviations_within_a_twentieth_and_a_quarter(spread, noise):
    assert Times(1.0, 0.0, 0.0, 0.0, spread).noise == pytest.approx(noise)


def test_eight_steps_are_a_block():
    assert len(reference(7).blocks) == 0
    found = reference(8)
    assert (len(found.blocks), found.rest) == (1, [])


@pytest.mark.parametrize(("blocks", "enough"), [(4, False), (5, True)])
def test_five_blocks_are_enough(blocks, enough):
    assert reference(8 * blocks).enough == enough


def test_128_blocks_are_remembered_and_16_are_stored():
    found = Reference([Times(float(number), 0.0, 0.0, 0.0) for number in range(129)])
    found.add(steps(1))
    assert [one.step for one in found.blocks][:1] == [1.0]
    assert len(found.blocks) == 128
    assert [row[0] for row in found.kept()["blocks"]] == [
        float(number) for number in range(113, 129)
    ]


def test_the_fastest_fifth_of_the_blocks_is_undisturbed():
    found = Reference([Times(float(number), 0.0, 0.0, 0.0) for number in range(1, 11)])
    assert found.usual().step == 1.5


@pytest.mark.parametrize(
    ("own", "often", "step"),
    [(0.010, 8, 0.110), (0.0125, 8, 0.1), (0.05, 6, 0.1), (0.05, 5, 0.15)],
)
def test_who_lags_by_a_tenth_of_a_step_in_three_of_four_is_taken_out(own, often, step):
    def more(number, rank):
        # Other steps are as long by another rank each.
        late = 1 if number <= often else number % 4 + 2 * (number % 4 == 1)
        return {"own": own} if rank == late else {}

    (block,) = reference(8, more=more).blocks
    assert block.step == pytest.approx(step)


def account(**more):
    return Account(**{"until": BEGIN, "last_end": BEGIN, "last_number": 10, "attempt": 0} | more)


@pytest.mark.parametrize(("early", "taken"), [(0.19, 1), (0.21, 0)])
def test_clocks_of_nodes_differ_by_a_fifth_of_a_second(early, taken):
    records = table(run(BEGIN - early, (11,), first=False))
    found = account()._new_steps(Look(now=BEGIN + 10.0, gpus=RANKS, records=records))
    assert len(found or ()) == taken
    later = table(run(BEGIN + early, (11,), first=False))
    found = account()._new_steps(Look(now=BEGIN, gpus=RANKS, records=later))
    assert (found is not None) == bool(taken)


@pytest.mark.parametrize(("waited", "taken"), [(300.0, False), (301.0, True)])
def test_few_steps_have_to_do_after_five_minutes(waited, taken):
    found = account(last_end=math.nan, last_number=-1, attempt=-1)
    found._take_all(steps(19), Look(now=BEGIN + waited, gpus=RANKS))
    assert (found.kept > 0) == taken


@pytest.mark.parametrize(("age", "complete"), [(59.0, 2), (61.0, 3)])
def test_ranks_are_not_waited_for_longer_than_a_minute(age, complete):
    seen = replace(steps(3), ranks=np.array([4, 4, 3]))
    assert _complete(seen, float(seen.end[-1]) + age) == complete


@pytest.mark.parametrize(("pause", "counted"), [(1800.0, 1800.0), (1801.0, 0.0)])
@pytest.mark.parametrize("part", [parts.RESTART, parts.IDLE])
def test_behind_a_pause_of_half_an_hour_it_is_another_job(part, pause, counted):
    found = account()
    found._pass(BEGIN + pause, part, Look(now=BEGIN + pause, gpus=1))
    assert found.seconds[part] == counted


@pytest.mark.parametrize(("number", "replay"), [(1, 5), (2, 5), (3, 0)])
def test_processes_that_count_their_own_steps_begin_at_two_or_less(number, replay):
    found = account(kept=10, saved=4)
    again = run(end(run(BEGIN, (10,))) + 5.0, (number,), first=False)
    (start, lasted) = again[0]["t_start_unix_seconds"], again[0]["step_seconds"]
    usual = Times(0.1, 0.0, 0.1, 0.0)
    look = Look(now=start + lasted, gpus=RANKS)
    found._begin_run(number, 1, start, start + lasted, usual, look)
    assert found.replay == replay


@pytest.mark.parametrize(("age", "from_"), [(599.0, 599.0), (601.0, 600.0)])
def test_nothing_takes_longer_than_ten_minutes_to_start(age, from_):
    look = Look(now=BEGIN, gpus=RANKS, started=BEGIN - age)
    assert _beginning(look, None) == BEGIN - from_
