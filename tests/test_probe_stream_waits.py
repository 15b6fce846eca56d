"""Sync, copies and compute of the training stream against what a fake device really did."""

from __future__ import annotations

import random
import struct
import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rankscope_probe
from fake_rank import MS, FakeRank
from probe_jobs.running import read_only_ring, written
from rankscope_agent.sources.training.extension import Extension
from stream_schedules import SCHEDULES, Model, Step

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
    deadline=None,
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


def measured(directory: Path, rank: FakeRank) -> list[tuple[int, int, int]]:
    """Return number, sync and reason of each record, once the device has done all."""
    rank.device.drain()
    rank.probe.write_rest()
    return [
        (record.step, record.sync_ns, record.flags >> 8 & 0xF)
        for record in read_only_ring(directory).records
    ]


def step_with(rank: FakeRank, exchange: float = 3.0) -> None:
    rank.device.kernel(5.0)
    rank.group.allreduce(exchange).wait()


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRank:
    return FakeRank(tmp_path, monkeypatch)


def steps(rank: FakeRank, count: int = 3) -> None:
    for _ in range(count):
        step_with(rank)
        rank.end_step()


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


def test_nothing_is_recorded_asked_or_read_while_a_graph_is_captured(
    rank: FakeRank, tmp_path: Path
) -> None:
    steps(rank)
    graph = rank.device.cuda.CUDAGraph()
    step_with(rank)
    graph.capture_begin()  # the fake refuses every call until its end
    rank.group.allreduce(1.0)
    rank.probe.end_step(0)
    graph.capture_end()
    steps(rank, 4)
    reasons = [reason for _, _, reason in measured(tmp_path, rank)]
    assert reasons[3] == rankscope_probe._CAPTURE
    assert reasons[-1] == 0


def test_replay_of_a_graph_with_collectives_spoils_its_step_and_others_do_not(
    rank: FakeRank, tmp_path: Path
) -> None:
    steps(rank)
    graphs = [rank.device.cuda.CUDAGraph() for _ in range(2)]
    for number, graph in enumerate(graphs):
        graph.capture_begin()
        rank.launched += number
        graph.capture_end()
    steps(rank, 2)
    for graph in graphs:
        step_with(rank)
        graph.replay()
        rank.end_step()
    steps(rank, 1)
    reasons = [reason for _, _, reason in measured(tmp_path, rank)]
    assert reasons[-3:] == [0, rankscope_probe._UNSEEN_PATH, 0]


def test_pool_that_runs_dry_ends_the_sample_and_the_next_ones_go_on(
    rank: FakeRank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rankscope_probe, "_MAX_EVENTS", 40)
    steps(rank)
    for _ in range(100):
        step_with(rank)
    rank.end_step()
    steps(rank, 2)
    assert [reason for _, _, reason in measured(tmp_path, rank)][2:] == [
        *(0, rankscope_probe._POOL_DRY, 0, 0)
    ]
    assert rank.probe.backwards.device_waits.made <= 40


def test_collectives_that_no_hook_saw_spoil_the_sample(rank: FakeRank, tmp_path: Path) -> None:
    steps(rank)
    step_with(rank)
    rank.launched += 1
    rank.end_step()
    steps(rank, 1)
    assert measured(tmp_path, rank)[-2][1:] == (-1, rankscope_probe._UNSEEN_PATH)


def test_library_that_waits_by_itself_spoils_samples(
    rank: FakeRank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deep_ep", ModuleType("deep_ep"))
    steps(rank, 4)
    assert measured(tmp_path, rank)[-1][1:] == (-1, rankscope_probe._UNSEEN_PATH)


def test_step_without_any_wait_is_unmeasured(rank: FakeRank, tmp_path: Path) -> None:
    steps(rank)
    rank.device.kernel(5.0)
    rank.end_step()
    assert measured(tmp_path, rank)[-1][1:] == (-1, rankscope_probe._NO_WAIT)


def test_long_wait_for_an_event_of_unknown_origin_spoils_the_sample_a_short_one_does_not(
    rank: FakeRank, tmp_path: Path
) -> None:
    steps(rank)
    for milliseconds in (0.01, 30.0):
        unknown = rank.device.cuda.Stream(0)
        unknown.run(milliseconds)
        event = rank.device.cuda.Event()
        event.put_into(unknown)  # in C++
        rank.device.training.wait_event(event)
        step_with(rank)
        rank.end_step()
    reasons = [reason for _, _, reason in measured(tmp_path, rank)]
    assert reasons[-2:] == [0, rankscope_probe._UNKNOWN_WAITS]


def test_events_that_never_complete_hold_up_no_record_for_more_than_eight_steps(
    rank: FakeRank, tmp_path: Path
) -> None:
    steps(rank)
    rank.device.never = True
    steps(rank, 30)
    written = [record.step for record in read_only_ring(tmp_path).records]
    assert written[-1] >= 33 - rankscope_probe._PENDING_STEPS
    assert len(rank.probe.backwards.device_waits.pending) <= rankscope_probe._PENDING_STEPS
    assert measured(tmp_path, rank)[-1][2] == rankscope_probe._TOO_LATE


def test_device_that_fails_ends_sampling_and_neither_training_nor_records(
    rank: FakeRank, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = rank.Work.wait
    steps(rank, 4)
    assert rank.Work.wait is not own
    call = rank.device.called
    for broken in ("query", "record", "elapsed_time"):
        monkeypatched = getattr(rank.device.cuda.Event, broken)

        def failing(*_: object) -> None:
            raise RuntimeError("CUDA error: device-side assert triggered")

        rank.probe.backwards.device_waits.record_own = failing
        setattr(rank.device.cuda.Event, broken, failing) if broken != "record" else None
        steps(rank, 6)
        setattr(rank.device.cuda.Event, broken, monkeypatched)
    assert call == rank.device.called
    numbers = [number for number, _, _ in measured(tmp_path, rank)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == 22
    assert rank.Work.wait is own
    assert "device-side assert" in capsys.readouterr().err


def test_cuda_that_does_not_start_leaves_the_job_unmeasured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rank = FakeRank(tmp_path, monkeypatch)

    def missing(index: object = None) -> None:
        raise RuntimeError("CUDA driver initialization failed")

    own, rank.device.cuda.current_stream = rank.device.cuda.current_stream, missing
    for _ in range(20):
        rank.device.host(5.0)
        rank.end_step()
    rank.device.cuda.current_stream = own
    assert [sync for _, sync, _ in measured(tmp_path, rank)] == [-1] * 20
    assert capsys.readouterr().err.count("initialization failed") == 1


def test_error_of_the_program_in_a_wait_is_the_programs(rank: FakeRank, tmp_path: Path) -> None:
    class Refused(Exception):
        pass

    def refuse() -> None:
        raise Refused

    steps(rank)
    step_with(rank)
    work = rank.group.allreduce(1.0)
    work.reach = refuse
    with pytest.raises(Refused):
        work.wait()
    rank.end_step()
    steps(rank, 1)
    assert [reason for _, _, reason in measured(tmp_path, rank)][-2:] == [
        *(rankscope_probe._BROKEN, 0)
    ]


def test_samples_become_rarer_until_they_cost_a_thousandth_of_all_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = FakeRank(tmp_path, monkeypatch, call_ms=0.004, every=None)
    for _ in range(2000):
        rank.device.kernel(60.0)
        for _ in range(50):
            rank.group.allreduce(0.1).wait()
        rank.end_step()
    waits = rank.probe.backwards.device_waits
    spent = waits.own_ns + waits.sample_ns + waits.other_ns
    assert spent <= rankscope_probe._BUDGET * (waits.all_ns + waits.lived_ns)
    sampled = [number for number, sync, _ in measured(tmp_path, rank) if sync >= 0]
    gaps = {after - before for before, after in pairwise(sampled[3:])}
    assert all(gap & (gap - 1) == 0 for gap in gaps), gaps  # so that ranks share their steps
    assert min(gaps) > 1
    assert max(gaps) < 256


def test_time_in_which_a_full_queue_holds_the_host_up_is_not_the_probes(
    rank: FakeRank, tmp_path: Path
) -> None:
    steps(rank)
    waits = rank.probe.backwards.device_waits
    record, calls = waits.record_own, []

    def full(event: object, stream: object) -> None:
        calls.append(event)
        rank.device.host(4.0)
        record(event, stream)

    waits.record_own = full
    before = waits.sample_ns
    steps(rank, 2)
    assert len(calls) >= 6
    assert waits.sample_ns - before < len(calls) * (rankscope_probe._HELD_NS + 0.05 * MS)
    measured(tmp_path, rank)


def test_cost_of_a_sample_is_of_the_interval_in_which_it_was_taken(rank: FakeRank) -> None:
    """Also of its last event, which a full queue holds up, just before the interval is chosen."""
    steps(rank)
    waits = rank.probe.backwards.device_waits
    record, chosen = waits.record_own, []

    def full(event: object, stream: object) -> None:
        rank.device.host(4.0)
        record(event, stream)

    def choose() -> None:
        chosen.append(waits.sample_ns)
        waits.sample_ns = 0

    waits.record_own, waits.choose_interval = full, choose
    steps(rank, 4)
    assert len(chosen) == 4
    assert all(0 < spent < MS for spent in chosen), chosen


def test_reading_a_sample_is_a_cost_of_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = FakeRank(tmp_path, monkeypatch, every=4)
    waits = rank.probe.backwards.device_waits
    times, taken = waits.read_times, []

    def slow(sample: object) -> object:
        taken.append(sample)
        rank.device.host(20.0)
        return times(sample)

    waits.read_times = slow
    steps(rank, 14)
    assert len(taken) == 3
    assert waits.other_ns < 5 * MS
    assert waits.sample_ns > 60 * MS


@pytest.mark.parametrize(
    ("wanted", "backend", "replicated", "timed"),
    [
        (None, "cpu:gloo,cuda:nccl", False, "_StreamWaits"),
        (None, "cpu:gloo,cuda:nccl", True, "_DeviceWaits"),
        (None, "cpu:gloo,cuda:gloo", False, "NoneType"),
        ("1", "cpu:gloo,cuda:nccl", True, "_StreamWaits"),
        ("1", "cpu:gloo,cuda:gloo", False, "_StreamWaits"),
        ("0", "cpu:gloo,cuda:nccl", False, "NoneType"),
        ("0", "cpu:gloo,cuda:nccl", True, "_DeviceWaits"),
    ],
)
def test_waits_are_timed_wherever_they_are_on_nccl_unless_all_are_at_the_ends_of_backwards(
    wanted: str | None,
    backend: str,
    replicated: bool,
    timed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = FakeRank(tmp_path, monkeypatch, replicated=replicated)
    rank.torch.distributed.get_backend_config = lambda: backend
    monkeypatch.delenv("RANKSCOPE_PROBE_STREAM_WAITS")
    if wanted is not None:
        monkeypatch.setenv("RANKSCOPE_PROBE_STREAM_WAITS", wanted)
    rank.probe.backwards.device_waits = None
    rank.probe.time_device_waits()
    assert type(rank.probe.backwards.device_waits).__name__ == timed


def test_hooks_are_in_place_only_in_steps_that_are_sampled_and_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = FakeRank(tmp_path, monkeypatch, every=8)
    own, hooked = rank.Work.wait, []
    for _ in range(1, 16):
        step_with(rank)
        hooked.append(rank.Work.wait is not own)
        rank.end_step()
    assert [number for number, there in enumerate(hooked, 1) if there] == [7, 8, 15]


def test_hooks_of_others_are_left_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = FakeRank(tmp_path, monkeypatch, every=8)
    calls: list[str] = []
    for number in range(1, 40):
        if number in (5, 16):
            own = rank.Work.wait

            def theirs(work: object, own: object = own) -> None:
                calls.append("theirs")
                own(work)  # type: ignore[operator]

            rank.Work.wait = theirs
        step_with(rank)
        rank.end_step()
    assert len(calls) == 35 + 24
    assert next(sync for step, sync, _ in measured(tmp_path, rank) if step == 32) > 0
