"""What is known of a job goes on from where it was cut, can be saved, and stays bounded."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps.layout import Layout, layout
from rankscope_analyzers.steps.records import Account, RecordError
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed, state
from rankscope_analyzers.stragglers.faults import merge_incidents
from rankscope_analyzers.stragglers.feed import Feed
from rankscope_analyzers.stragglers.incident_tracker import IncidentTracker
from rankscope_analyzers.stragglers.incidents import IncidentStore, Moment
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.state import StateError
from rankscope_analyzers.stragglers.view import Candidate
from suite_jobs import fault, made

GROUPED = Layout(32, 1, 1, 0, wall=True, by_groups=True)
BLOCK_ROWS = 100
"""So few records are judged at once here that much of each stream is judged before its end."""

RECORDED = Path(__file__).parent / "fixtures" / "running_jobs"


def simulated(**changes):
    slow = fault("gpu_compute", "gpu", 1.5, first=60, last=120)
    slow_all = fault("global_slowdown", "compute", 1.3, first=150, last=220)
    return made(
        slow, slow_all, missing=0.02, evaluation_period=40, evaluation_seconds=3.0, **changes
    )


def in_order(records):
    return records.sort_values("t_start_unix_seconds", kind="stable").reset_index(drop=True)


def disturbed(records):
    """Return records with late, doubled and useless ones, and ranks that join and are strange."""
    random = np.random.default_rng(11)
    records = records[~((records["rank"] >= 24) & (records["step"] < 40))]
    late = records.sample(60, random_state=1)
    late = late.assign(
        t_start_unix_seconds=late["t_start_unix_seconds"] + random.uniform(0, 90, 60)
    )
    again = records.sample(60, random_state=2)
    bad = records.sample(20, random_state=3).assign(step_seconds=-1.0)
    stray = records.sample(20, random_state=4).assign(rank=77)
    return pd.concat([records, late, again, bad, stray])


def running(job):
    spent = job.records[["data_seconds", "compute_seconds", "sync_seconds"]].sum(axis=1)
    other = (job.records["step_seconds"] - spent).clip(lower=0)
    return job.records.assign(other_seconds=other, timing_source="kernel", cpu_wait_seconds=0.0)


NAMES = ("trace", "running", "disturbed", "brief", "recorded")


@cache
def streams():
    """Return records in order and the layout of jobs that are awkward in some way each."""
    restarted = simulated(restart=130, shrinks=True)
    flat = simulated(tensor=1, pipeline=1, timing="wall")
    recorded = pd.read_parquet(RECORDED / "syn.parquet").assign(node="node", gpu=0)
    return {
        "trace": (restarted.records, layout(restarted.meta, 0)),
        "running": (running(restarted), GROUPED),
        "disturbed": (disturbed(running(flat)), GROUPED),
        "brief": (running(flat).query("step < 30"), GROUPED),
        "recorded": (recorded, Layout(2, 1, 1, 0, wall=True, by_groups=True)),
    }


@cache
def whole(name):
    """Return what is found in all records of a stream at once."""
    records, job = streams()[name]
    return feed.detect_latest(FrameTable(in_order(records)), job)


def passed_on(known):
    """Return what is known as another process would that loads what this one saved."""
    return state.loaded(json.loads(json.dumps(state.document(known), allow_nan=False)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_where_a_stream_is_cut_saved_and_loaded_changes_nothing_that_is_found(name, seed):
    records, job = streams()[name]
    records = in_order(records)
    random = np.random.default_rng(seed)
    cuts = sorted(random.integers(0, len(records), 1 + 4 * seed).tolist())
    known = Feed(job, block_rows=BLOCK_ROWS)
    for first, last in zip([0, *cuts], [*cuts, len(records)], strict=True):
        if last > first:
            known = passed_on(known)
            known.add(FrameTable(records.iloc[first:last].reset_index(drop=True)))
    assert known.finish() == whole(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_look_at_a_stream_is_as_if_it_had_ended_there_and_changes_nothing(name):
    records, job = streams()[name]
    records = in_order(records)
    whole, looked = Feed(job, BLOCK_ROWS), Feed(job, BLOCK_ROWS)
    for part in np.array_split(np.arange(len(records)), 5):
        looked.add(FrameTable(records.iloc[part]))
        whole.add(FrameTable(records.iloc[part]))
        so_far = FrameTable(records.iloc[: part[-1] + 1])
        assert looked.peek() == looked.peek() == feed.detect_latest(so_far, job)
    assert state.document(looked) == state.document(whole)


def test_something_is_found_in_the_streams_that_are_cut():
    kinds = {name: {one.kind for one in whole(name).incidents} for name in streams()}
    assert kinds.keys() == set(NAMES)
    assert "gpu_compute" in kinds["trace"] & kinds["running"]
    assert kinds["disturbed"]
    assert kinds["recorded"]


def test_a_stream_of_which_no_record_is_usable_so_far_is_an_error_that_costs_nothing():
    records, job = streams()["running"]
    records = in_order(records)
    known = Feed(job)
    with pytest.raises(RecordError, match="none of 5 records can be used"):
        known.add(FrameTable(records.head(5).assign(step_seconds=-1.0)))
    with pytest.raises(RecordError, match="none of 5 records can be used"):
        known.peek()
    known.add(FrameTable(records))
    assert known.peek().incidents == feed.detect_latest(FrameTable(records), job).incidents


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found | {"version": 0}, "version 0, expected 1"),
        (lambda found: [], "version None"),
        (lambda found: found | {"state": {"object": "os.system", "fields": {}}}, "os.system"),
        (
            lambda found: found | {"state": found["state"] | {"fields": {"job": None}}},
            r"Feed has the fields \['job'\]",
        ),
        (lambda found: found | {"state": {"array": "AA==", "of": "O", "shape": [1]}}, "an array"),
        (lambda found: found | {"state": {"array": "!", "of": "f8", "shape": [1]}}, "array"),
        (lambda found: found | {"state": {"again": 7}}, "again"),
        (lambda found: found | {"state": {"tuple": 7}}, "7 is not a list"),
        (lambda found: found | {"state": {"nothing": 7}}, "stands for nothing"),
    ],
)
def test_a_document_that_is_no_state_is_refused_and_says_why(change, said):
    records, job = streams()["brief"]
    known = Feed(job)
    known.add(FrameTable(in_order(records)))
    with pytest.raises(StateError, match=said):
        state.loaded(change(state.document(known)))


def test_deep_documents_are_refused():
    deep = {"version": state.VERSION, "state": None}
    for _ in range(500):
        deep["state"] = {"tuple": [deep["state"]]}
    with pytest.raises(StateError, match="stands for nothing"):
        state.loaded(deep)


def size(known):
    return len(json.dumps(state.document(known)))


def test_a_job_that_never_settles_keeps_as_much_in_memory_as_one_that_does():
    random, tracker = np.random.default_rng(5), IncidentTracker()
    kinds = ("gpu_compute", "data_loader", "network_link", "host_transient")
    sizes = []
    for evaluation in range(8_000):
        kind, rank = kinds[random.integers(4)], int(random.integers(1 << 14))
        found = Candidate(kind, 0.2, (rank,), -1, 2.0, 1.0)
        moment = Moment(10.0 * evaluation, 10.0 * evaluation - 5.0)
        tracker.add_freeze(found, moment, lambda one: ("node",))
        tracker.update((), "kernels", moment, lambda one: ("node",))
        if evaluation % 2_000 == 1_000:
            sizes.append(size(tracker))
    assert len(tracker.incidents) <= 128
    assert max(sizes) < 1.05 * min(sizes)


def spell(book, rank, began):
    found = Candidate("gpu_compute", 0.5, (rank,), -1, 2.0, 1.0)
    number = book.open(found, began, Moment(began + 5.0, began), ("node",))
    book.close(number, began + 10.0, for_good=True)


def test_spells_that_are_no_longer_kept_count_in_the_fault_that_they_belong_to():
    book = IncidentStore()
    for number in range(3 * 128):
        spell(book, number % 2, 100.0 * number)
    first, second = merge_incidents(book.incidents, 1e9)
    assert first.count + second.count == 3 * 128
    assert min(first.since, second.since) == 0.0
    assert first.lost + second.lost == pytest.approx(0.5 * 10.0 * 3 * 128)
    assert first.lost_fraction == pytest.approx(0.5)


def test_an_incident_that_goes_on_is_kept_whatever_comes_and_goes_beside_it():
    book = IncidentStore()
    found = Candidate("data_loader", 0.5, (7,), -1, 2.0, 1.0)
    going = book.open(found, 1.0, Moment(2.0, 1.0), ("node",))
    for number in range(3 * 128):
        spell(book, number + 10, 100.0 * number)
    assert book[going] in book.incidents
    assert (book[going].since, book[going].until) == (1.0, None)


def counters(steps, **changes):
    table = {"step": np.arange(steps), "rank": 0, "node": "n"}
    table |= {"t_start_unix_seconds": 100.0 + np.arange(steps), "step_seconds": 0.9}
    return pd.DataFrame(table | changes)


def runs(records, job):
    return sum(
        isinstance(one, Shape) for one in feed.assembled(FrameTable(records), job, Account())
    )


@pytest.mark.parametrize("column", ["step", "attempt"])
def test_a_counter_that_is_none_makes_no_more_runs_than_a_job_can_have(column):
    count = 20_000
    odd = np.random.default_rng(3).integers(0, 1 << 30, count)
    rising = np.arange(count)
    changes = {"step": {"step": odd}, "attempt": {"step": rising % 7, "attempt": rising}}[column]
    made_of = runs(counters(count, **changes), Layout(1, 1, 1, 0, wall=True, by_groups=True))
    assert 100 < made_of <= 2 * 100


def test_a_job_that_restarts_once_a_day_for_years_is_followed_through_all_restarts():
    starts = np.repeat(np.arange(500) * 86400.0, 1000) + np.tile(np.arange(1000.0), 500)
    job = Layout(1, 1, 1, 0, wall=True, by_groups=True)
    records = counters(500_000, t_start_unix_seconds=starts)
    assert runs(records, job) == 500


def test_of_a_step_that_is_told_over_and_over_one_record_is_held():
    """Half a million records wait before what doubles others is dropped."""
    known = Feed(Layout(2, 1, 1, 0, wall=True, by_groups=True))
    sizes = []
    for _ in range(12):
        same = counters(100_000, step=np.full(100_000, 5), t_start_unix_seconds=100.0)
        known.add(FrameTable(same))
        sizes.append(size(known))
    assert max(sizes[6:]) < 1.5 * max(sizes[:6])
