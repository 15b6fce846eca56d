"""While a graph is under capture the probe asks the device nothing, which would end it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import rankscope_probe
from test_probe_device_waits import Event, Job, make, records  # noqa: F401 - a fixture


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have events refuse to be queried during a capture, as CUDA does."""
    query = Event.query

    def refuse(event: Event) -> bool:
        assert not event.cuda.capturing, "an event was queried during a capture"
        return query(event)

    monkeypatch.setattr(Event, "query", refuse)


@pytest.mark.usefixtures("refusing")
def test_steps_before_a_capture_are_written_after_it(
    make: Callable[..., Job],  # noqa: F811 - the fixture
    tmp_path: Any,
) -> None:
    job = make()
    job.step(2.0)
    job.cuda.work_off()
    job.cuda.capturing = True
    job.step(2.0)
    assert records(tmp_path) == []
    job.cuda.capturing = False
    job.step(2.0)
    assert [record.sync_ns for record in records(tmp_path)] == [2_000_000, -1]
    assert job.probe.guard.told == set()


@pytest.mark.usefixtures("refusing")
def test_losses_from_before_a_capture_are_read_after_it(make: Callable[..., Job]) -> None:  # noqa: F811
    job = make()
    signals = rankscope_probe._Signals(job.torch, job.probe.guard)
    event = job.cuda.Event(enable_timing=True)
    event.record()
    signals.pending.append((SimpleNamespace(item=lambda: 1.5), event, 1, ()))
    job.cuda.work_off()
    job.cuda.capturing = True
    signals.flush(0)
    signals.loss(SimpleNamespace(is_cpu=False))
    assert signals.losses == 0
    job.cuda.capturing = False
    signals.flush(0)
    assert signals.losses == 1
    assert job.probe.guard.told == set()
