"""The device's waits as the probe times them, on a fake of torch.cuda."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rankscope_probe
from fake_device import MS, Event, Job
from probe_jobs.running import WALL, Record, read_only_ring


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    return lambda **given: Job(tmp_path, monkeypatch, **given)


def records(directory: Path) -> list[Record]:
    return list(read_only_ring(directory).records)


def test_sync_is_the_time_that_the_device_waited(make: Callable[..., Job], tmp_path: Path) -> None:
    job = make()
    for wait_ms in (3.0, 40.0, 1.5):
        job.step(wait_ms)
        job.cuda.work_off()
    job.step(0.0)
    first, *rest = records(tmp_path)
    assert [record.sync_ns for record in (first, *rest)] == [3 * MS, 40 * MS, 1.5 * MS]
    for record in (first, *rest):
        assert record.flags & 3 == WALL
        assert record.data_ns == -1  # no loader was used
        assert record.compute_ns + record.sync_ns == record.step_ns


def test_record_waits_for_the_device_and_never_makes_the_host_wait(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make()
    for _ in range(4):
        job.step(2.0)
    assert records(tmp_path) == []
    job.cuda.work_off()
    job.step(2.0)
    assert [record.step for record in records(tmp_path)] == [1, 2, 3, 4]


def test_device_that_is_far_behind_leaves_steps_unmeasured(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make()
    for _ in range(10):
        job.step(2.0)
    late = records(tmp_path)
    assert [record.step for record in late] == [1, 2]
    assert {(record.compute_ns, record.sync_ns, record.flags & 3) for record in late} == {
        (-1, -1, 0)
    }


def test_events_are_used_again(make: Callable[..., Job]) -> None:
    job = make()
    for _ in range(50):
        job.step(2.0)
        job.cuda.work_off()
    assert len(job.cuda.made) == 4  # a pair on its way while the next one is recorded
    assert sum(event.recorded for event in job.cuda.made) == 100


def test_waits_of_all_backwards_of_a_step_count(make: Callable[..., Job], tmp_path: Path) -> None:
    job = make()
    job.step(3.0, backwards=4)
    job.cuda.work_off()
    job.step(0.0)
    assert records(tmp_path)[0].sync_ns == 12 * MS


def test_step_with_more_backwards_than_are_timed_is_unmeasured(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make()
    job.step(0.1, backwards=rankscope_probe._MAX_WAITS + 1)
    job.cuda.work_off()
    job.step(0.0)
    assert records(tmp_path)[0].sync_ns == -1


def test_nothing_is_put_into_a_graph_under_capture(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make()
    job.cuda.capturing = True
    job.step(2.0)
    job.cuda.capturing = False
    job.step(2.0)
    job.cuda.work_off()
    job.step(2.0)
    assert [record.sync_ns for record in records(tmp_path)] == [-1, 2 * MS]


def test_replay_without_a_backward_is_unmeasured(make: Callable[..., Job], tmp_path: Path) -> None:
    job = make()
    job.step(2.0, backwards=0)
    assert [record.sync_ns for record in records(tmp_path)] == [-1]


def test_wait_elsewhere_leaves_its_step_unmeasured(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make()
    job.torch._C._distributed_c10d.Work().wait()
    job.step(2.0)
    job.step(2.0)
    job.cuda.work_off()
    job.step(2.0)
    assert [record.sync_ns for record in records(tmp_path)] == [-1, 2 * MS]


@pytest.mark.parametrize(
    "given", [{"replicated": False}, {"mesh": "of sharded parameters"}, {"groups": 2}]
)
def test_jobs_that_wait_in_other_places_get_no_events(
    make: Callable[..., Job], tmp_path: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_PROBE_STREAM_WAITS", "0")
    job = make(**given)
    job.step(2.0)
    assert job.cuda.made == []
    assert [(record.sync_ns, record.flags & 3) for record in records(tmp_path)] == [(-1, 0)]


def test_steps_on_their_way_are_written_when_the_process_ends(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make()
    job.step(2.0)
    job.cuda.work_off()
    job.step(4.0)
    job.probe.write_passed(0)
    assert [record.sync_ns for record in records(tmp_path)] == [2 * MS, -1]


class Group:
    def __init__(self) -> None:
        self.timed = False

    def _enable_collectives_timing(self) -> None:
        self.timed = True


@pytest.mark.parametrize(
    ("variables", "timed"),
    [
        ({}, False),
        ({"RANKSCOPE_PROBE_DURATIONS": "1"}, True),
        ({"RANKSCOPE_PROBE_DURATIONS": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}, True),
        ({"RANKSCOPE_PROBE_DURATIONS": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}, False),
    ],
)
def test_durations_are_asked_for_by_request_and_refused_where_they_end_overlap(
    make: Callable[..., Job],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    timed: bool,
) -> None:
    for name in ("RANKSCOPE_PROBE_DURATIONS", "CUDA_DEVICE_MAX_CONNECTIONS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    job, group = make(), Group()
    job.torch.distributed.distributed_c10d._world.pg_map = {group: "nccl"}
    job.probe.flight.time_collectives()
    assert group.timed is timed
    refused = "CUDA_DEVICE_MAX_CONNECTIONS" in variables and not timed
    assert ("is refused" in capsys.readouterr().err) is refused


def test_input_counts_as_far_as_the_device_stood_still_for_it(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make()

    def fetch(idle_ms: float) -> Callable[[Any], None]:
        """Return a loader's method in which the device is idle for so long of 60 ms."""

        def wait(loader: Any) -> None:
            job.cuda.queue.append(idle_ms)
            job.probe.clock.begin_ns -= 60 * MS

        return job.probe.loader.fetching(wait, counted=False)

    hidden, exposed = fetch(0.0), fetch(45.0)
    for method in (hidden, exposed):
        method(None)
        job.probe.clock.data_ns = 60 * MS
        job.step(20.0)
    job.cuda.work_off()
    job.step(20.0)
    first, second = records(tmp_path)[:2]
    assert (first.data_ns, second.data_ns) == (0, 45 * MS)
    assert first.compute_ns == pytest.approx(first.step_ns - 20 * MS, abs=MS / 10)
    made = len(job.cuda.made)
    for _ in range(20):
        hidden(None)
        job.step(20.0)
        job.cuda.work_off()
    assert len(job.cuda.made) == made


def test_step_with_more_batches_than_are_timed_has_the_hosts_time_for_them(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make()
    fetch = job.probe.loader.fetching(lambda loader: None, counted=False)
    for _ in range(rankscope_probe._MAX_WAITS + 1):
        fetch(None)
    job.probe.clock.data_ns = 60 * MS
    job.step(20.0)
    job.cuda.work_off()
    job.step(20.0)
    first = records(tmp_path)[0]
    assert (first.data_ns, first.sync_ns) == (60 * MS, 20 * MS)


def test_steps_before_an_error_of_cuda_are_written_when_the_process_ends(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    """After one that is sticky, CUDA answers nothing, not even if a graph is under capture."""
    job = make()
    for _ in range(3):
        job.step(2.0)

    def failing(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    job.cuda.is_current_stream_capturing = failing  # type: ignore[assignment]
    for event in job.cuda.made:
        event.query = failing  # type: ignore[assignment]
    job.probe.guard.guarded(job.probe.write_rest)()
    assert [(record.step, record.sync_ns) for record in records(tmp_path)] == [
        (1, -1),
        (2, -1),
        (3, -1),
    ]


@pytest.mark.parametrize("broken", ["query", "elapsed_time"])
def test_events_that_always_fail_leave_steps_unmeasured(
    make: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    job = make()

    def failing(*_: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(Event, broken, failing)
    for _ in range(130):
        job.step(3.0)
        job.cuda.work_off()
    written = records(tmp_path)
    assert [record.step for record in written] == list(range(1, len(written) + 1))
    assert len(written) > 120
    assert {record.sync_ns for record in written} == {-1}
    assert job.probe.guard.told == {"waits of the device"}


def test_fetches_whose_ends_always_fail_have_the_hosts_time_and_cost_nothing_else(
    make: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make()

    def failing(*_: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(rankscope_probe._DeviceWaits, "fetch_ends", failing)
    fetch = job.probe.loader.fetching(lambda loader: None, counted=False)
    for _ in range(130):
        fetch(None)
        job.probe.clock.data_ns = 60 * MS
        job.step(20.0)
        job.cuda.work_off()
    written = records(tmp_path)
    assert len(written) > 120
    assert {(record.data_ns, record.sync_ns) for record in written} == {(60 * MS, 20 * MS)}
