import json
import math

import numpy as np
import pytest

from goodput_records import STEP, end, run, table
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.account import Account, Look, Within, restored

RANKS = 4


def account(records, *, every=5.0, until=None, found=None, **seen):
    """Look at a job again and again while its records come in."""
    found = found or Account()
    last = records.t_start_unix_seconds.max() + 1.0 if until is None else until
    now = records.t_start_unix_seconds.min()
    while now < last:
        now = min(now + every, last)
        shown = records[records.t_start_unix_seconds + records.step_seconds <= now]
        found.look(Look(now=now, gpus=RANKS, records=shown, **seen))
    return found


def recoveries(records, *, found, **seen):
    """Look likewise; return the recoveries that each look saw."""
    several = []
    last = records.t_start_unix_seconds.max() + 1.0
    for now in range(int(records.t_start_unix_seconds.min()) + 5, int(last) + 6, 5):
        shown = records[records.t_start_unix_seconds + records.step_seconds <= now]
        found.look(Look(now=float(now), gpus=RANKS, records=shown, **seen))
        several += [(one.interruption, one.seconds) for one in found.recoveries]
    return several


def saves(step, rank, *at, seconds=5.0):
    return {"checkpoint": seconds} if step in at and not rank else {}


def stands(step, rank, at):
    return {"own": 40.0} if step == at and rank == 1 else {}


def said(found):
    return {part: seconds for part, seconds in found.seconds.items() if seconds > 1e-6}


def test_a_healthy_job_is_productive_and_nothing_else():
    found = account(table(run(1000.0, range(1, 301))))
    assert said(found) == {parts.PRODUCTIVE: pytest.approx(RANKS * 300 * STEP)}


def test_the_time_before_the_first_step_is_start_up():
    records = run(1000.0, range(1, 301), lambda step, _: {"own": 6.0} if step == 1 else {})
    found = account(table(records), started=980.0)
    assert found.seconds[parts.STARTUP] == pytest.approx(RANKS * 26.0)
    assert found.seconds[parts.PRODUCTIVE] == pytest.approx(RANKS * 300 * STEP)


def test_start_up_counts_where_steps_are_seen_before_the_start_of_their_processes():
    records = table(run(1000.0, range(1, 301)))
    found = Account()
    shown = records[records.t_start_unix_seconds < 1010.0]
    found.look(Look(now=1011.0, gpus=RANKS, records=shown))
    found = account(records, found=found, started=980.0)
    assert said(found) == {
        parts.STARTUP: pytest.approx(RANKS * 20.0),
        parts.PRODUCTIVE: pytest.approx(RANKS * 300 * STEP),
    }


def test_steps_wait_one_look_for_the_start_of_their_processes_and_no_longer():
    records = table(run(1000.0, range(1, 101)))
    found = Account()
    found.look(Look(now=1011.0, gpus=RANKS, records=records))
    assert said(found) == {}
    found.look(Look(now=1016.0, gpus=RANKS, records=records))
    assert said(found) == {parts.PRODUCTIVE: pytest.approx(RANKS * 100 * STEP)}


@pytest.mark.parametrize(
    ("part", "more"),
    [
        (parts.DATA, lambda step, rank: {"data": 0.05} if 150 <= step < 350 else {}),
        (parts.DATA, lambda step, r: {"data": 0.05} if 150 <= step < 350 and r == 2 else {}),
        (parts.STRAGGLER, lambda step, r: {"own": 0.05} if 150 <= step < 350 and r == 2 else {}),
        (parts.SLOWDOWN, lambda step, rank: {"own": 0.05} if 150 <= step < 350 else {}),
        (parts.SYNC, lambda step, rank: {"sync": 0.05} if 150 <= step < 350 else {}),
        (
            parts.CHECKPOINT,
            lambda step, r: saves(step, r, 200, 300),
        ),
        (parts.EVALUATION, lambda step, r: {"evaluation": 5.0} if step in (200, 300) else {}),
    ],
    ids=["all-data", "one-data", "straggler", "slowdown", "sync", "checkpoint", "evaluation"],
)
def test_seconds_that_steps_take_longer_belong_to_what_they_were_spent_on(part, more):
    found = account(table(run(1000.0, range(1, 501), more)))
    assert said(found) == {
        parts.PRODUCTIVE: pytest.approx(RANKS * 500 * STEP),
        part: pytest.approx(RANKS * 10.0),
    }


def test_a_rank_that_was_slow_from_the_first_step_on_costs_what_it_exceeds_its_peers_by():
    steps = run(1000.0, range(1, 301), lambda _, r: {"own": 0.04} if r == 1 else {})
    found = account(table(steps))
    assert found.seconds[parts.STRAGGLER] == pytest.approx(RANKS * 299 * 0.04)
    assert found.seconds[parts.STARTUP] == pytest.approx(RANKS * 0.04)
    assert found.seconds[parts.PRODUCTIVE] == pytest.approx(RANKS * 300 * STEP)


def test_overlapping_faults_are_counted_once_in_the_documented_order():
    """One rank waits for data while another one computes: each step is late only once."""

    def more(step, rank):
        return {1: {"data": 0.05}, 2: {"own": 0.08}}.get(rank, {}) if step >= 300 else {}

    records = table(run(1000.0, range(1, 501), more))
    found = account(records)
    lasted = records.groupby("step").step_seconds.max().sum()
    assert sum(found.seconds.values()) == pytest.approx(RANKS * lasted)
    assert found.seconds[parts.DATA] == pytest.approx(RANKS * 201 * 0.05)
    assert found.seconds[parts.STRAGGLER] == pytest.approx(RANKS * 201 * 0.03)


def test_what_no_part_of_a_step_explains_is_of_what_was_found_of_the_job_or_unexplained():
    records = table(run(1000.0, range(1, 501), lambda s, _: {"own": 0.05} if s >= 301 else {}))
    for name in ("data_seconds", "compute_seconds", "sync_seconds"):
        records[name] = math.nan
    lost = pytest.approx(RANKS * 200 * 0.05)
    assert account(records).seconds[parts.UNEXPLAINED] == lost
    found = account(records, findings=(Within(0.0, math.inf, parts.SYNC),))
    assert found.seconds[parts.SYNC] == lost


def test_a_hang_counts_while_it_lasts_and_once():
    steps = run(1000.0, range(1, 201))
    stood = end(steps)
    rest = run(
        stood,
        range(201, 401),
        lambda s, r: {"own": 40.0} if s == 201 and r == 1 else {},
        first=False,
    )
    found = account(table(steps), until=stood + 0.5)
    for now in (15.0, 20.0, 25.0):
        found.look(Look(now=stood + now, gpus=RANKS, records=table(steps), hung_since=stood))
    assert found.seconds[parts.HANG] == pytest.approx(RANKS * 25.0)
    ends = recoveries(table(steps, rest), found=found)
    assert said(found) == {
        parts.PRODUCTIVE: pytest.approx(RANKS * 400 * STEP),
        parts.HANG: pytest.approx(RANKS * 40.0),
    }
    assert (found.hangs, found.restarts) == (1, 0)
    assert ends == [(parts.HANG, pytest.approx(40.0))]


def seen_each(seconds, records, last, **changes):
    """Look at a job at equal times, with what is seen of it at each."""
    found = Account()
    for now in np.arange(1000.0, last + 1.0, seconds).tolist():
        shown = records[records.t_start_unix_seconds + records.step_seconds <= now]
        seen = {name: change(now) for name, change in changes.items()}
        found.look(Look(now=now, gpus=RANKS, records=shown, started=980.0, **seen))
    return found


def test_a_job_that_hangs_after_the_first_step_on_record_loses_all_its_time():
    """That step is the first one of its processes: nothing shows what a usual one takes."""
    records = table(run(1000.0, [2], lambda *_: {"own": 20.0}))
    stood = end(run(1000.0, [2], lambda *_: {"own": 20.0}))
    found = seen_each(30.0, records, 4000.0, hung_since=lambda t: stood if t > 1090.0 else None)
    assert said(found) == {
        parts.STARTUP: pytest.approx(RANKS * (stood - 980.0)),
        parts.HANG: pytest.approx(RANKS * (4000.0 - stood)),
    }
    assert found.hangs == 1


def test_a_job_that_fails_in_each_third_step_loses_all_its_time():
    attempts = [run(1000.0 + 60.0 * number, [2], attempt=number) for number in range(20)]
    found = seen_each(30.0, table(*attempts), 2200.0)
    assert said(found) == {
        parts.STARTUP: pytest.approx(RANKS * (20.0 + STEP)),
        parts.RESTART: pytest.approx(RANKS * 19 * 60.0),
    }
    assert found.restarts == 19


def test_a_restart_is_lost_up_to_its_first_step_and_so_are_the_steps_made_again():
    before = run(1000.0, range(1, 201), lambda s, r: saves(s, r, 101, seconds=1.0))
    died = end(before)
    again = run(died + 20.0, range(1, 301), lambda s, _: {"own": 2.0} if s == 1 else {}, attempt=1)
    found = Account()
    ends = recoveries(table(before, again), found=found, started=died + 5.0)
    assert found.restarts == 1
    assert ends == [(parts.RESTART, pytest.approx(22.0))]
    assert found.seconds[parts.RESTART] == pytest.approx(RANKS * 22.0)
    assert found.seconds[parts.CHECKPOINT] == pytest.approx(RANKS * 1.0)
    # Of the 100 steps behind the checkpoint, the first one ends the restart.
    assert found.seconds[parts.REPLAYED] == pytest.approx(RANKS * 99 * STEP)
    assert found.seconds[parts.PRODUCTIVE] == pytest.approx(RANKS * (200 + 201) * STEP)
    assert sum(found.seconds.values()) == pytest.approx(RANKS * (end(again) - 1000.0))


def test_a_hang_that_ends_in_a_restart_is_one_recovery_however_long():
    before = run(1000.0, range(1, 101))
    again = run(end(before) + 3600.0, range(1, 101), attempt=1)
    found = account(table(before))
    hung = end(before)
    found.look(Look(now=hung + 3000.0, gpus=RANKS, records=table(before), hung_since=hung))
    found.look(Look(now=end(again) + 1.0, gpus=RANKS, records=table(before, again)))
    assert [(one.interruption, one.seconds) for one in found.recoveries] == [
        (parts.RESTART, pytest.approx(3600.0))
    ]


def test_a_counter_that_is_the_jobs_says_itself_which_steps_are_made_again():
    before = run(1000.0, range(5001, 5201))
    again = run(end(before) + 20.0, range(5101, 5401), attempt=1)
    found = account(table(before, again))
    assert found.seconds[parts.REPLAYED] == pytest.approx(RANKS * 100 * STEP)
    assert found.seconds[parts.PRODUCTIVE] == pytest.approx(RANKS * 400 * STEP)


def test_steps_up_to_a_checkpoint_that_was_saved_while_steps_were_made_again_are_not_made_thrice():
    """Each attempt counts from 1 and its first step is on no record."""
    first = run(1000.0, range(2, 1002), lambda s, r: saves(s, r, 501))  # after 500 steps
    second = run(end(first) + 20.0, range(2, 152), lambda s, r: saves(s, r, 102), attempt=1)
    third = run(end(second) + 20.0, range(2, 602), attempt=2)  # after 500 + 101 steps
    found = account(table(first, second, third))
    assert found.seconds[parts.REPLAYED] / (RANKS * STEP) == pytest.approx(150 + 1001 - 601 - 1)


def test_steps_that_nobody_saw_are_unobserved():
    before = run(1000.0, range(1, 201))
    after = run(end(before) + 15.0, range(351, 501), first=False)
    found = account(table(before, after))
    assert found.seconds[parts.UNOBSERVED] == pytest.approx(RANKS * 15.0)
    assert found.seconds[parts.PRODUCTIVE] == pytest.approx(RANKS * 350 * STEP)


def test_an_attempt_that_nobody_saw_is_unobserved():
    before = run(1000.0, range(1, 201))
    after = run(end(before) + 30.0, range(1, 201), attempt=2)
    found = account(table(before, after), started=end(before) + 25.0)
    assert found.seconds[parts.UNOBSERVED] == pytest.approx(RANKS * 25.0)
    assert found.seconds[parts.RESTART] == pytest.approx(RANKS * 5.0)


def test_a_job_without_step_records_is_unobserved_once_it_cannot_be_starting_any_longer():
    found = Account()
    for now in range(1000, 1620, 30):
        found.look(Look(now=float(now), gpus=8, started=1000.0))
    assert not said(found)
    found.look(Look(now=1630.0, gpus=8, started=1000.0))
    found.look(Look(now=1660.0, gpus=8, started=1000.0))
    assert said(found) == {parts.UNOBSERVED: pytest.approx(8 * 660.0)}


def test_gpus_that_wait_for_the_rest_of_their_job_are_held():
    found = Account()
    for now in (1000.0, 1030.0, 1060.0):
        found.look(Look(now=now, gpus=8, held=True))
    assert said(found) == {parts.HELD: pytest.approx(8 * 60.0)}


def test_steps_longer_than_the_time_between_looks_are_made_though_a_pod_has_no_node():
    steps = run(1000.0, range(1, 31), lambda *_: {"own": 39.9})
    found = seen_each(30.0, table(steps), end(steps) + 30.0, held=lambda now: now > 1100.0)
    assert found.seconds[parts.PRODUCTIVE] == pytest.approx(RANKS * 30 * 40.0)
    assert found.seconds[parts.HELD] == 0.0
    found.look(Look(now=end(steps) + 120.0, gpus=RANKS, held=True))
    assert found.seconds[parts.HELD] == pytest.approx(RANKS * 120.0)


def test_the_time_from_the_last_step_to_the_end_of_the_processes_is_idle():
    steps = run(1000.0, range(1, 201))
    found = account(table(steps))
    seen = Look(now=end(steps) + 30, gpus=RANKS, records=table(steps), alive=False)
    found.look(seen)
    assert parts.IDLE not in said(found), "nobody knows when they ended"
    over = Look(now=end(steps) + 30, gpus=RANKS, alive=False, ended=end(steps) + 7.0)
    for _ in range(2):
        found.look(over)
    assert found.seconds[parts.IDLE] == pytest.approx(RANKS * 7.0)


def test_a_clock_that_is_set_forward_adds_no_time():
    before = run(1000.0, range(1, 201))
    after = run(end(before) + 3600.0, range(201, 401), first=False)
    found = account(table(before, after), every=60.0)
    assert said(found) == {parts.PRODUCTIVE: pytest.approx(RANKS * 400 * STEP)}


def test_a_clock_that_is_set_back_takes_no_time_away():
    before = run(1000.0, range(1, 201))
    after = run(end(before) - 3600.0, range(201, 401), first=False)
    found = account(table(before, after), every=60.0)
    seconds = said(found)
    assert min(seconds.values()) >= 0
    assert seconds[parts.PRODUCTIVE] == pytest.approx(RANKS * 400 * STEP)


def test_records_that_are_delivered_twice_count_once():
    records = run(1000.0, range(1, 301))
    assert said(account(table(records, records))) == said(account(table(records)))


def test_an_account_that_was_kept_goes_on_as_if_nothing_had_been():
    def more(step, rank):
        return {"own": 0.05} if 150 <= step < 350 and rank == 2 else {}

    records = table(run(1000.0, range(1, 501), more))
    whole = account(records)
    half = account(records[records.step <= 230])
    later = restored(json.loads(json.dumps(half.as_json(), allow_nan=False)))
    account(records, found=later)
    assert said(later) == {part: pytest.approx(n, rel=1e-4) for part, n in said(whole).items()}


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_sums_that_are_none_are_not_restored(bad):
    kept = account(table(run(1000.0, range(1, 101)))).as_json()
    with pytest.raises(ValueError, match="is not a sum of a part"):
        restored({**kept, "seconds": {parts.PRODUCTIVE: bad}})
    with pytest.raises(ValueError, match="'sleep'"):
        restored({**kept, "seconds": {"sleep": 1.0}})
