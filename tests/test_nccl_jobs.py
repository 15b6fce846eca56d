"""Recorded jobs on NCCL: two ranks on one H200 in time slices, torch 2.11, over loopback sockets.

They were recorded by `python -m benchmarks gpu-proof`. Hosts run up to two steps ahead of their
devices, so that ranks end the same step at different times.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps import clocks, frames
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import Account
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.stragglers.diagnosis import diagnosis
from rankscope_analyzers.stragglers.shape import Shape

RECORDED = Path(__file__).parent / "fixtures" / "nccl_jobs"

EXPECTED = {
    "input-with-a-host-ahead": ("data_loader", (1,)),
    "host-behind-of-shards": ("gpu_compute", (1,)),
    "host-of-peers-that-only-wait": ("gpu_compute", (1,)),
    "device-of-a-pipeline": ("gpu_compute", (1,)),
    "copies-of-tensor-parallel": ("gpu_compute", (1,)),
    "hidden-input": None,
    "peers-that-compute-little": None,
    "healthy-shards": None,
}


def verdict(name):
    rows = pd.read_parquet(RECORDED / f"{name}.parquet").assign(node="node")
    return diagnosis(JobRecords("job", rows, 2, (), live=True)).verdict


@pytest.mark.parametrize("name", EXPECTED)
def test_the_fault_that_was_made_is_named(name):
    cause = verdict(name).cause
    assert (cause and (cause.kind, cause.where.ranks)) == EXPECTED[name]


def test_every_recording_has_an_answer():
    assert {path.stem for path in RECORDED.iterdir()} == set(EXPECTED)


def test_no_rank_is_missing_because_its_peer_is_steps_ahead():
    one = verdict("input-with-a-host-ahead")
    assert one.steps >= 20
    assert not any("no records of" in note for note in one.unobserved)


def test_peers_that_do_next_to_nothing_make_no_ratio_of_thousands():
    assert "waits more than 100x as long" in verdict("input-with-a-host-ahead").cause.summary


def test_copies_between_host_and_device_are_named_as_such():
    summary = verdict("copies-of-tensor-parallel").cause.summary
    assert "it waits 37.9 ms a step for copies between host and device, the others 0 s" in summary


def other_of(rows, known):
    """Return what is known of the rest of steps on devices: of one in 12 that evaluated, or none.

    The probe knows of the rest only how long checkpoints and evaluations took.
    """
    return np.where(known & (rows["step"] % 12 == 5), 0.05, np.nan)


@pytest.mark.parametrize("evaluating", [False, True])
@pytest.mark.parametrize("timing", ["sampled", "wall"])
def test_hosts_that_run_ahead_are_no_clocks_that_differ(timing, evaluating):
    rows = pd.read_parquet(RECORDED / "input-with-a-host-ahead.parquet")
    rows = rows.assign(
        node=rows["rank"].map("node-{}".format), other_seconds=other_of(rows, evaluating)
    )
    rows.loc[rows["timing_source"] == "sampled", "timing_source"] = timing
    found = diagnosis(JobRecords("job", rows, 2, (), live=True)).verdict
    assert found.cause.where.ranks == (1,)
    assert found.clock_offsets == ()
    assert clocks.offsets(frames.build("job", rows, 2, newest_run=True))  # 0.4 s from its ends


def test_ranks_leave_no_exchange_late_by_hosts_that_run_ahead():
    rows = pd.read_parquet(RECORDED / "input-with-a-host-ahead.parquet").assign(node="node")
    for other, known in (
        (other_of(rows, False), False),
        (other_of(rows, True), False),
        (1e-3, True),
    ):
        table = FrameTable(rows.assign(other_seconds=other))
        job = Layout(2, 1, 1, 0, wall=True, by_groups=True)
        parts = feed.assembled(table, job, Account())
        lateness = [one.steps.exit_lateness for one in parts if not isinstance(one, Shape)]
        assert all((one is not None) == known for one in lateness)
        assert lateness
