"""How records of any quality become steps."""

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.frames import RecordError
from rankscope_analyzers.stragglers import feed
from suite_jobs import found, incidents, made

META = {"world_size": 8, "tensor_parallel": 2, "pipeline_parallel": 2, "compute_timing": "kernel"}


def rows(count=3, **changes):
    table = {"step": np.arange(count), "rank": np.zeros(count, dtype=int), "node": "n", "gpu": 0}
    table |= {"t_start_unix_seconds": 100.0 + np.arange(count), "step_seconds": 0.9}
    table |= {"data_seconds": 0.1, "compute_seconds": 0.5, "sync_seconds": 0.2}
    return pd.DataFrame(table | changes)


@pytest.mark.parametrize("column", feed.REQUIRED)
def test_a_missing_column_is_named(column):
    with pytest.raises(RecordError, match=rf"lack the columns \['{column}'\]"):
        feed.columns(rows().drop(columns=column), 8)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"compute_seconds": [0.5, np.nan, 0.5]}, "incomplete"),
        ({"compute_seconds": [0.5, "soon", 0.5]}, "incomplete"),
        ({"sync_seconds": [0.2, np.inf, 0.2]}, "incomplete"),
        ({"data_seconds": [0.1, -0.1, 0.1]}, "negative"),
        ({"rank": [0, 9, 1]}, "of ranks outside the world of 8"),
    ],
)
def test_an_unusable_record_is_left_out_and_counted(changes, why):
    kept = feed.columns(rows(**changes), 8)
    assert len(kept.step) == 2
    assert kept.dropped == ((why, 1),)


def test_no_usable_record_is_an_error_that_says_why():
    with pytest.raises(RecordError, match=r"none of 3 records can be used \(3 negative\)"):
        feed.columns(rows(step_seconds=-1.0), 8)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"world_size": 10}, "world_size 10 is no multiple of pipeline_parallel 2 x"),
        ({"tensor_parallel": 0}, "tensor_parallel is 0, expected a whole number"),
        ({"microbatches": "8"}, "microbatches is '8', expected a whole number"),
        ({"compute_timing": "cpu"}, "compute_timing is 'cpu', expected kernel or wall"),
    ],
)
def test_metadata_that_make_no_sense_are_named(changes, complaint):
    with pytest.raises(RecordError, match=complaint):
        feed.layout(META | changes, 8)


def test_stages_that_contradict_the_metadata_are_named():
    simulated = made(steps=60)
    with pytest.raises(RecordError, match=r"pp_stage contradicts meta\.json"):
        incidents(simulated.meta, simulated.records.assign(pp_stage=7))


def test_without_metadata_the_job_is_data_parallel():
    layout = feed.layout({}, 6)
    assert (layout.world, layout.pipeline, layout.tensor, layout.wall) == (6, 1, 1, False)


def test_a_counter_that_falls_back_begins_a_new_run():
    whole = rows(6, step=[5, 6, 7, 6, 7, 8])
    assert feed.runs(feed.columns(whole, 8)) == (slice(0, 3), slice(3, 6))


def test_a_long_silence_begins_a_new_run():
    whole = rows(4, t_start_unix_seconds=[100.0, 101.0, 191.0, 192.0])
    assert feed.runs(feed.columns(whole, 8)) == (slice(0, 2), slice(2, 4))


def test_clock_offsets_begin_no_run():
    starts = [100.0, 100.04, 100.98, 101.05]
    whole = rows(4, step=[0, 0, 1, 1], rank=[0, 1, 0, 1], t_start_unix_seconds=starts)
    assert len(feed.runs(feed.columns(whole, 8))) == 1


def test_the_order_of_records_does_not_matter():
    simulated = made(steps=120)
    shuffled = simulated.records.sample(frac=1, random_state=1)
    assert incidents(simulated.meta, shuffled) == found(simulated)


def test_a_record_that_comes_twice_counts_once():
    simulated = made(steps=120)
    twice = pd.concat([simulated.records, simulated.records], ignore_index=True)
    assert incidents(simulated.meta, twice) == found(simulated)
