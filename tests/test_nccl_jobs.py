"""Recorded jobs on NCCL: two ranks on one H200 in time slices, torch 2.11, over loopback sockets.

They were recorded by `python -m benchmarks gpu-proof`. Hosts run up to two steps ahead of their
devices, so that ranks end the same step at different times.
"""

from pathlib import Path

import pandas as pd
import pytest

from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnosis

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
