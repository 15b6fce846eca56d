"""Steps whose waits on the device cannot be measured: said to be so, and the job goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

import rankscope_probe
from fake_rank import FakeRank
from probe_jobs.running import read_only_ring
from sampled_ranks import measured, rank, step_with, steps

__all__ = ["rank"]


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


def test_capture_that_had_begun_before_the_hooks_ends_as_without_them(
    rank: FakeRank, tmp_path: Path
) -> None:
    steps(rank)
    graph = rank.device.cuda.CUDAGraph()
    type(graph).capture_begin.__wrapped__(graph)
    graph.capture_end()
    steps(rank, 2)
    step_with(rank)
    graph.replay()  # what it waits for is not known
    rank.end_step()
    reasons = [reason for _, _, reason in measured(tmp_path, rank)]
    assert reasons[-2:] == [0, rankscope_probe._UNSEEN_PATH]


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
