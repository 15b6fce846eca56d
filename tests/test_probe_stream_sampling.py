"""Which jobs and steps have the waits of their streams measured, and what a sample costs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import rankscope_probe
from fake_rank import MS, FakeRank
from sampled_ranks import measured, rank, step_with, steps

__all__ = ["rank"]


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
