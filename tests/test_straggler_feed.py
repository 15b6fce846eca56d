"""How records of any quality become steps."""

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import Account, RecordError
from rankscope_analyzers.steps.rows import REQUIRED, rows_of
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.stragglers.assembly import Assembler
from rankscope_analyzers.stragglers.shape import Shape
from suite_jobs import fault, found, incidents, judged, made

FLAT = Layout(world=8, pipeline=1, tensor=1, microbatches=1, wall=False)


def rows(count=3, **changes):
    table = {"step": np.arange(count), "rank": np.zeros(count, dtype=int), "node": "n", "gpu": 0}
    table |= {"t_start_unix_seconds": 100.0 + np.arange(count), "step_seconds": 0.9}
    table |= {"data_seconds": 0.1, "compute_seconds": 0.5, "sync_seconds": 0.2}
    return pd.DataFrame(table | changes)


def assembled(records, job=FLAT):
    account = Account()
    return list(feed.assembled(FrameTable(records), job, account)), account.dropped


def counters_of_runs(records, job=FLAT):
    runs = []
    for made_of in assembled(records, job)[0]:
        if isinstance(made_of, Shape):
            runs.append([])
        else:
            runs[-1] += made_of.counters.tolist()
    return runs


@pytest.mark.parametrize(("behind", "late"), [(16, False), (17, True)])
def test_a_record_sixteen_steps_behind_its_run_is_in_time_and_one_more_is_too_late(behind, late):
    straggling = rows(1, step=[10], rank=[1], t_start_unix_seconds=[110.5 + behind])
    made_of, dropped = assembled(pd.concat([rows(60), straggling]))
    (block,) = made_of[1:]
    assert [one.reason for one in dropped] == ["late"] * late
    assert np.isfinite(block.steps.step.reshape(60, -1)[10]).sum() == (1 if late else 2)


def test_a_record_sixteen_steps_behind_is_put_into_its_step_if_records_come_one_by_one():
    straggling = rows(1, step=[10], rank=[1], t_start_unix_seconds=[126.5])
    records = pd.concat([rows(60), straggling]).sort_values("t_start_unix_seconds")
    table = {name: records[name].to_numpy() for name in REQUIRED}
    table["node"] = np.zeros(61, dtype=int)
    one_by_one = rows_of(table, np.arange(61), None)
    assembler = Assembler(Layout(8, 1, 1, 0, wall=True, by_groups=True), Account(), 1)
    counted = []
    for number in range(61):
        for made_of in assembler.add(one_by_one.at(slice(number, number + 1))):
            counted += [] if isinstance(made_of, Shape) else made_of.counters.tolist()
    assert counted == list(range(43))


@pytest.mark.parametrize("column", REQUIRED)
def test_a_missing_column_is_named(column):
    with pytest.raises(RecordError, match=rf"lack the columns \['{column}'\]"):
        assembled(rows().drop(columns=column))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"step_seconds": [0.5, np.nan, 0.5]},
            "1 incomplete record was left out, the first in row 2: step_seconds is missing or "
            "not a number",
        ),
        (
            {"step_seconds": ["soon", "later", 0.5]},
            "2 incomplete records were left out, the first in row 1: step_seconds is missing "
            "or not a number",
        ),
        (
            {"sync_seconds": [0.2, 0.2, np.inf]},
            "1 infinite record was left out, the first in row 3: sync_seconds is infinite",
        ),
        (
            {"data_seconds": [0.1, -0.1, 0.1]},
            "1 negative record was left out, the first in row 2: data_seconds is -0.1",
        ),
        (
            {"rank": [0, 9, 1]},
            "1 foreign record was left out, the first in row 2: rank is 9, the world has 8 ranks",
        ),
        (
            {"step": [0, 1, 1e300]},
            "1 oversized record was left out, the first in row 3: step is 1e+300",
        ),
        (
            {"step": [0, 1, 1.5]},
            "1 fractional record was left out, the first in row 3: step is 1.5",
        ),
        (
            {"step": [0, 1, 1], "t_start_unix_seconds": [100.0, 101.0, 101.0]},
            "1 duplicate record was left out, the first in row 3: its rank has reported that step "
            "before",
        ),
        (
            {"step": [0, 1, 1]},
            "1 contested record was left out, the first in row 3: its rank has reported that step "
            "with other times: two processes claim one rank",
        ),
    ],
)
def test_an_unusable_record_is_left_out_and_counted_by_row_and_column(changes, said):
    (_, block), (dropped,) = assembled(rows(**changes))
    assert np.isfinite(block.steps.step).sum() == 3 - dropped.count
    assert str(dropped) == said


@pytest.mark.parametrize("broken", [{"step_seconds": np.nan}, {"rank": 9}, {"data_seconds": -1.0}])
def test_one_bad_record_costs_no_other_however_far_the_job_has_come(broken):
    records = rows(40).astype({"rank": float})
    records.loc[3, list(broken)] = list(broken.values())
    made_of, (dropped,) = assembled(records)
    assert (dropped.count, dropped.row) == (1, 4)
    assert sum(len(block.counters) for block in made_of if not isinstance(block, Shape)) == 39


def test_a_bad_record_in_a_long_job_changes_nothing_that_is_found():
    simulated = made(fault("gpu_compute", "gpu", 1.5))
    broken = simulated.records.copy()
    broken.loc[7, "compute_seconds"] = np.nan
    (said,), (once,) = found(simulated), incidents(simulated.meta, broken)
    assert (once.kind, once.ranks, once.detected_at) == (said.kind, said.ranks, said.detected_at)


def test_what_was_not_measured_costs_no_record():
    (_, block), dropped = assembled(rows(compute_seconds=[0.5, np.nan, 0.5]))
    assert dropped == ()
    assert np.isfinite(block.steps.step).sum() == 3
    assert np.isfinite(block.steps.compute).sum() == 2


def test_the_row_is_that_of_the_source_whatever_the_order_of_starts():
    backwards = rows(t_start_unix_seconds=[102.0, 101.0, 100.0], step=[2, 1, 0])
    _, (dropped,) = assembled(backwards.assign(sync_seconds=[0.2, 0.2, -1.0]))
    assert dropped.row == 3


def test_no_usable_record_is_an_error_that_says_why():
    with pytest.raises(
        RecordError,
        match=r"none of 3 records can be used: 3 negative, the first in row 1: step_seconds is -1",
    ):
        assembled(rows(step_seconds=-1.0))


def test_a_record_far_behind_its_run_is_counted_and_changes_nothing():
    simulated = made(steps=120)
    late = simulated.records[simulated.records["step"] == 20].head(2).copy()
    late["t_start_unix_seconds"] += 150.0
    found_again = judged(simulated.meta, pd.concat([simulated.records, late]))
    assert found_again.incidents == found(simulated)
    (dropped,) = found_again.dropped
    assert (dropped.reason, dropped.count, dropped.row) == ("late", 2, len(simulated.records) + 1)
    assert dropped.what.startswith("it is of step 20, its run had reached ")


@pytest.mark.parametrize(("column", "value"), [("pp_stage", 7), ("tp_group", 99), ("dp_group", 99)])
def test_places_that_contradict_the_metadata_are_named(column, value):
    simulated = made(steps=60)
    with pytest.raises(RecordError, match=rf"row \d+: {column} contradicts meta\.json: rank \d+ "):
        incidents(simulated.meta, simulated.records.assign(**{column: value}))


def test_a_few_wrong_places_are_no_contradiction():
    simulated = made(steps=60)
    records = simulated.records.copy()
    records.loc[records.index[:20], "pp_stage"] = 7
    assert incidents(simulated.meta, records) == ()


def test_a_counter_that_falls_back_begins_a_new_run():
    assert counters_of_runs(rows(6, step=[5, 6, 7, 6, 7, 8])) == [[5, 6, 7], [6, 7, 8]]


def test_a_long_silence_begins_a_new_run():
    whole = rows(4, t_start_unix_seconds=[100.0, 101.0, 191.0, 192.0])
    assert counters_of_runs(whole) == [[0, 1], [2, 3]]


def test_clock_offsets_begin_no_run():
    starts = [100.0, 100.04, 100.98, 101.05]
    whole = rows(4, step=[0, 0, 1, 1], rank=[0, 1, 0, 1], t_start_unix_seconds=starts)
    assert counters_of_runs(whole) == [[0, 1]]


def test_counters_with_large_gaps_are_consecutive_steps():
    assert counters_of_runs(rows(3, step=[0, 10**9, 4 * 10**15])) == [[0, 10**9, 4 * 10**15]]


def test_the_order_of_records_does_not_matter():
    simulated = made(steps=120)
    shuffled = simulated.records.sample(frac=1, random_state=1)
    assert incidents(simulated.meta, shuffled) == found(simulated)


def test_a_record_that_comes_twice_counts_once():
    simulated = made(steps=120)
    twice = pd.concat([simulated.records, simulated.records], ignore_index=True)
    again = judged(simulated.meta, twice)
    assert again.incidents == found(simulated)
    (dropped,) = again.dropped
    assert (dropped.reason, dropped.count) == ("duplicate", len(simulated.records))


@pytest.mark.parametrize("length", [8, 10, 12, 25])
def test_a_stage_that_falls_silent_while_its_exchange_is_slow_keeps_its_verdict(length):
    slow = fault("network_link", "node", 6.0, first=80, last=220, slot=9)
    simulated = made(slow, world=16, tensor=2, pipeline=2)
    rows = simulated.records
    silent = (rows["node"] == "node-00001") & rows["step"].between(110, 109 + length)
    (said,) = incidents(simulated.meta, rows[~silent])
    assert said.kind == "network_link"
    assert said.ranks[0] in simulated.labels["faults"][0]["accept_ranks"]


def paused(seconds, step_seconds=0.9, back=0):
    """Return the counters of the runs of ten steps, with a pause after the fifth.

    Args:
        seconds: from the end of the fifth step to the start of the sixth, negative if they overlap.
        back: by how much the counter falls there.
    """
    starts = 100.0 + step_seconds * np.arange(10)
    starts[5:] += seconds
    step = np.arange(10)
    step[5:] -= back
    records = rows(10, step=step, t_start_unix_seconds=starts, step_seconds=step_seconds)
    return counters_of_runs(records)


WHOLE = [list(range(10))]
PARTED = [list(range(5)), list(range(5, 10))]


@pytest.mark.parametrize(
    ("seconds", "step_seconds", "runs"),
    [(4.9, 0.9, WHOLE), (5.1, 0.9, PARTED), (11.8, 4.0, WHOLE), (12.2, 4.0, PARTED)],
)
def test_a_job_that_idles_for_five_seconds_and_three_steps_has_restarted(
    seconds, step_seconds, runs
):
    assert paused(seconds, step_seconds) == runs


@pytest.mark.parametrize(("overlap", "first"), [(0.19, 2), (0.21, 3)])
def test_a_counter_that_falls_is_a_restart_where_clocks_explain_the_overlap(overlap, first):
    """The step that overlaps by more is one of before that came late; the next one is none."""
    assert paused(-overlap, back=3) == [[0, 1, 2, 3, 4], list(range(first, 7))]
