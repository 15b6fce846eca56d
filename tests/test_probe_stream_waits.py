"""Sync, copies and compute of the training stream against what a fake device really did."""

from __future__ import annotations

import random
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rankscope_probe
from fake_rank import MS, FakeRank
from probe_jobs.running import read_only_ring, written
from rankscope_agent.sources.training.extension import Extension
from sampled_ranks import measured, rank, step_with, steps
from stream_schedules import SCHEDULES, Model, Step

__all__ = ["rank"]

SLOT = 64


def extensions(directory: Path) -> list[Extension]:
    """Return the slots beside the only ring."""

    (path,) = directory.glob("*.ext")
    slots = written(path)[SLOT:]
    return [
        extension
        for extension in map(Extension._make, struct.iter_unpack("<QqqqqqqHHI", slots))
        if extension.seq
    ]


@pytest.mark.parametrize("kind", SCHEDULES)
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 2**32),
    model=st.builds(
        Model,
        layers=st.integers(1, 6),
        compute=st.floats(0.5, 30),
        exchange=st.floats(0.5, 60),
        copy=st.floats(0.1, 60),
        data=st.floats(0, 20),
        host=st.floats(0, 2),
    ),
    runs_ahead=st.booleans(),
)
def test_each_part_of_a_step_is_what_the_device_spent_on_it(
    kind: str,
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    model: Model,
    runs_ahead: bool,
) -> None:
    directory = tmp_path_factory.mktemp("rings")
    with pytest.MonkeyPatch.context() as patch:
        rank = FakeRank(directory, patch, replicated=kind == "ddp")
        step = Step(rank, model, random.Random(seed))
        for _ in range(5):
            SCHEDULES[kind](step)
            rank.end_step(runs_ahead)
        rank.device.drain()
        rank.probe.write_rest()
        records = read_only_ring(directory).records
        beside = extensions(directory)
    assert len(records) == 5
    for record, slot, (step_ms, truth) in list(zip(records, beside, rank.truths, strict=True))[2:]:
        longest = step_ms * MS
        assert record.flags >> 8 & 0xF == 0
        assert record.data_ns == pytest.approx(truth.data * MS, abs=0.02 * longest)
        assert record.sync_ns == pytest.approx(
            min(truth.peers * MS, longest - record.data_ns), abs=0.02 * longest
        )
        busy = record.step_ns - record.data_ns - record.sync_ns
        assert record.compute_ns == busy
        assert slot.copies_ns == pytest.approx(min(truth.copies * MS, busy), abs=0.02 * longest)


def test_input_that_loads_while_the_device_is_busy_is_not_waited_for(
    rank: FakeRank, tmp_path: Path
) -> None:
    steps(rank)
    for _ in range(2):  # the device is 90 ms behind when the second fetch begins
        rank.fetch(40.0)
        rank.device.kernel(15.0)
        rank.group.allreduce(75.0).wait()
        rank.probe.end_step(0)
    rank.fetch(170.0)
    rank.device.kernel(15.0)
    rank.group.allreduce(3.0).wait()
    rank.probe.end_step(0)
    measured(tmp_path, rank)
    exposed, hidden, partly = (
        record.data_ns / MS for record in read_only_ring(tmp_path).records[-3:]
    )
    assert exposed == pytest.approx(40.0, rel=0.02)
    assert hidden == pytest.approx(0.0, abs=0.1)
    assert partly == pytest.approx(170.0 - (2 * 90.0 - 40.0), rel=0.02)


def test_collective_within_a_fetch_is_sync(rank: FakeRank, tmp_path: Path) -> None:
    def broadcast(milliseconds: float) -> None:
        rank.device.fetch(milliseconds)
        rank.group.allreduce(12.0).wait()
        rank.device.training.synchronize()

    steps(rank)
    rank.probe.loader.fetching(broadcast, counted=False)(20.0)
    rank.device.kernel(5.0)
    rank.end_step()
    measured(tmp_path, rank)
    record = read_only_ring(tmp_path).records[-1]
    assert record.data_ns == pytest.approx(20 * MS, rel=0.02)
    assert record.sync_ns == pytest.approx(12 * MS, rel=0.02)


def test_step_that_ends_while_its_batch_is_made_costs_nothing_else(
    rank: FakeRank, tmp_path: Path
) -> None:
    """As in a data set that trains a model of its own."""

    def train(milliseconds: float) -> None:
        rank.device.fetch(milliseconds)
        step_with(rank)
        rank.end_step()

    steps(rank)
    rank.probe.loader.fetching(train, counted=False)(20.0)
    steps(rank)
    assert [reason for _, _, reason in measured(tmp_path, rank)][-2:] == [0, 0]
    assert not rank.probe.guard.told


@pytest.mark.parametrize(
    ("spans", "uncovered"),
    [
        ([], 10.0),
        ([(0.0, 4.0), (25.0, 30.0)], 10.0),
        ([(8.0, 12.0), (11.0, 14.0)], 6.0),
        ([(11.0, 17.0), (12.0, 13.0)], 4.0),
        ([(0.0, 30.0), (11.0, 12.0)], 0.0),
    ],
)
def test_part_of_a_fetch_in_which_several_wait_counts_once(
    spans: list[tuple[float, float]], uncovered: float
) -> None:
    assert rankscope_probe._uncovered(10.0, 20.0, spans) == pytest.approx(uncovered)


def test_copies_and_what_the_host_left_undone_are_apart_from_waits_for_peers(
    rank: FakeRank, tmp_path: Path
) -> None:
    copies = rank.device.cuda.Stream(0)
    steps(rank)
    with rank.device.on(copies):
        rank.device.kernel(40.0, "copies")
    rank.device.training.wait_stream(copies)
    rank.device.kernel(5.0)
    rank.device.training.synchronize()
    rank.device.host(20.0)
    rank.device.kernel(5.0)
    rank.group.allreduce(3.0).wait()
    rank.end_step()
    assert measured(tmp_path, rank)[-1][1] == pytest.approx(3 * MS, rel=0.02)
    slot = extensions(tmp_path)[-1]
    assert slot.copies_ns == pytest.approx(40 * MS, rel=0.02)
    assert slot.host_late_ns < 0.1 * MS  # the last wait came while the stream had work


def test_stream_that_has_run_dry_before_a_wait_shows_a_late_host(
    rank: FakeRank, tmp_path: Path
) -> None:
    steps(rank)
    rank.device.host(30.0)
    rank.group.allreduce(3.0).wait()
    rank.end_step()
    measured(tmp_path, rank)
    assert extensions(tmp_path)[-1].host_late_ns == pytest.approx(30 * MS, rel=0.02)


def test_waits_of_another_thread_on_the_training_stream_count(
    rank: FakeRank, tmp_path: Path
) -> None:
    steps(rank)
    thread = threading.Thread(target=step_with, args=(rank, 7.0))
    thread.start()
    thread.join()
    rank.end_step()
    assert measured(tmp_path, rank)[-1][1] == pytest.approx(7 * MS, rel=0.02)


def test_streams_of_other_threads_and_other_devices_do_not_count(
    rank: FakeRank, tmp_path: Path
) -> None:
    steps(rank)
    other, elsewhere = rank.device.cuda.Stream(0), rank.device.cuda.Stream(1)
    elsewhere.stream_id = rank.device.training.stream_id

    def beside() -> None:
        for stream in (other, elsewhere):
            with rank.device.on(stream):
                step_with(rank, 50.0)

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    step_with(rank, 2.0)
    rank.end_step()
    # The one communicator runs collectives one after the other, those of the other streams first.
    waited = rank.truths[-1][1].peers
    assert measured(tmp_path, rank)[-1][1] == pytest.approx(waited * MS, rel=0.02)
