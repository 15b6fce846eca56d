"""Which pauses of hours are recoveries of a job, and which are between two jobs of one name."""

from __future__ import annotations

import json

import pytest

from goodput_records import STEP, end, run, table
from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.account import Account, Look, Recovery, restored
from rankscope_analyzers.watch.recoveries import Recoveries

RANKS, HALF_AN_HOUR, HOURS = 4, 1800.0, 5000.0
EVERY = 60.0


def recovered(pause, *, again=range(1, 101), attempt=0, watched=True, kept=False, **seen):
    """Return what an account saw of a job that makes steps, makes none, and makes steps again.

    Args:
        pause: seconds without steps.
        again: counters of the steps after it.
        attempt: of the launcher after it.
        watched: False if nobody looks in the meantime.
        kept: True if another watch continues in the middle.
        seen: what looks in the meantime see.
    """
    first = again.start - 1 if again.start > 2 else 0
    before = run(1000.0, range(first + 1, first + 101))
    after = run(end(before) + pause, again, attempt=attempt)
    found = Account()
    for now in (end(before) - 4.0, end(before) + 1.0):
        found.look(Look(now=now, gpus=RANKS, records=table(before)))
    looks = int(pause // EVERY) if watched else 0
    for number in range(1, looks):
        now = end(before) + number * EVERY
        found.look(Look(now=now, gpus=RANKS, records=table(before), **seen))
        if kept and number == looks // 2:
            found = saved_and_read(found)
    if kept and not watched:
        found = saved_and_read(found)
    found.look(Look(now=end(after) + 1.0, gpus=RANKS, records=table(before, after)))
    return found.recoveries


def saved_and_read(account):
    return restored(json.loads(json.dumps(account.as_json())))


GONE = {"alive": False}


@pytest.mark.parametrize(
    ("seen", "several"),
    [
        ({}, 1),
        ({**GONE, "held": True}, 1),
        (GONE, 0),
        ({**GONE, "attempt": 1}, 1),
        ({**GONE, "again": range(80, 180)}, 1),
        ({"watched": False}, 0),
        ({"watched": False, "attempt": 1}, 1),
        ({"kept": True}, 1),
        ({**GONE, "kept": True}, 0),
        ({"watched": False, "kept": True}, 0),
    ],
    ids=[
        "its pods hold GPUs",
        "its pods wait for nodes",
        "nothing of it is there",
        "its launcher counts on",
        "its steps go on",
        "nobody looks",
        "nobody looks and its launcher counts on",
        "its pods hold GPUs while the watch changes",
        "nothing of it is there while the watch changes",
        "nobody looks until another watch does",
    ],
)
def test_a_long_pause_is_a_recovery_if_the_same_job_goes_on(seen, several):
    found = recovered(HOURS, **seen)
    assert [one.interruption for one in found] == [parts.RESTART] * several
    assert all(one.seconds == pytest.approx(HOURS, abs=2 * STEP) for one in found)


def test_a_pause_of_up_to_half_an_hour_is_one_whatever_is_seen_of_the_job():
    assert len(recovered(HALF_AN_HOUR - 1.0, **GONE)) == 1
    assert len(recovered(HALF_AN_HOUR + 2.0, **GONE)) == 0


def test_a_recovery_of_more_than_half_an_hour_is_late_where_less_is_expected():
    known = Recoveries({"production": "15m", "": "2h"})
    known.add("team/llm", "production", recovered(HOURS))
    known.add("team/other", "production", [Recovery(parts.RESTART, 60.0)])
    found = {one.metric: one.value for one in known.samples()}
    assert found[metrics.RECOVERIES_LATE] == 1
    assert found[metrics.RECOVERIES].count == 2
