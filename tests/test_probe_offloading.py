"""Which device computes, as the probe decides it, if the optimizer's parameters are on the CPU."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rankscope_probe
from probe_jobs.nurseries import Nursery
from probe_jobs.running import WALL, read_rings

MIXED, GLOO = "cpu:gloo,cuda:nccl", "cpu:gloo,cuda:gloo"


class Group:
    """A process group whose backend for CUDA has run some collectives."""

    def __init__(self, ran: int) -> None:
        self.ran = ran

    def _get_backend(self, device: Any) -> Group:
        return self

    def _get_sequence_number_for_group(self) -> int:
        if self.ran < 0:
            raise RuntimeError("this backend does not count")
        return self.ran


class Model:
    """A module of DistributedDataParallel."""

    def __init__(self, device: str) -> None:
        self.device = SimpleNamespace(type=device)

    def parameters(self) -> list[Any]:
        return [self]


def probe_of(
    config: str, ran: int = 0, initialized: bool = True, mesh: str = "", model: Model | None = None
) -> Any:
    """Return a probe whose primary optimizer has its parameters on the CPU, in a job of two."""
    made: Any = object.__new__(rankscope_probe._Probe)
    world = SimpleNamespace(pg_map={Group(ran): 0}, pg_group_ranks={})
    made.torch = SimpleNamespace(
        cuda=SimpleNamespace(is_initialized=lambda: initialized),
        device=lambda kind: kind,
    )
    made.distributed = SimpleNamespace(
        get_backend_config=lambda: config,
        get_world_size=lambda: 2,
        distributed_c10d=SimpleNamespace(_world=world),
    )
    made.guard = rankscope_probe._Guard(made.torch)
    made.replicas = [] if model is None else [lambda: model]
    made.mesh = SimpleNamespace(device_type=mesh) if mesh else None
    made.device, made.connected = "cpu", True
    return made


@pytest.mark.parametrize(
    ("probe", "device"),
    [
        (probe_of(MIXED, ran=3, mesh="cuda"), "cuda"),
        (probe_of(MIXED, ran=3, model=Model("cuda")), "cuda"),
        (probe_of(MIXED, ran=3), ""),
        (probe_of(MIXED, ran=-1), ""),
        (probe_of(MIXED), "cpu"),
        (probe_of(MIXED, ran=3, initialized=False), "cpu"),
        (probe_of(MIXED, ran=3, model=Model("cpu")), "cpu"),
        (probe_of(MIXED, ran=3, mesh="cpu"), "cpu"),
        (probe_of(GLOO, ran=3), "cpu"),
        (probe_of("cpu:gloo", ran=3), "cpu"),
    ],
)
def test_what_is_known_of_models_and_collectives_says_which_device_computes(
    probe: Any, device: str
) -> None:
    assert probe.computing_device() == device


@pytest.mark.parametrize(
    ("probe", "timing"),
    [
        (probe_of(MIXED, ran=3), rankscope_probe._TIMING_NONE),
        (probe_of(MIXED), rankscope_probe._TIMING_WALL),
        (probe_of(GLOO, ran=3), rankscope_probe._TIMING_WALL),
    ],
)
def test_calls_that_block_on_gloo_are_timed_only_where_the_cpu_computes(
    monkeypatch: pytest.MonkeyPatch, probe: Any, timing: int
) -> None:
    monkeypatch.delenv("RANKSCOPE_PROBE_COLLECTIVES", raising=False)
    hooked: list[bool] = []
    probe.gloo = SimpleNamespace(hook=lambda: hooked.append(True))
    probe.backwards = SimpleNamespace(timed=False)
    probe.guard = SimpleNamespace(guarded=lambda observe: observe)
    probe.clock = SimpleNamespace(cpu=SimpleNamespace(watch=list))
    assert probe.choose_timing() == timing
    assert bool(hooked) == (timing == rankscope_probe._TIMING_WALL)


def test_a_time_limit_that_ends_while_collectives_are_counted_reaches_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_late(number: int, frame: Any) -> None:
        raise TimeoutError

    probe = probe_of(MIXED, ran=3)
    before = signal.signal(signal.SIGUSR1, too_late)
    interrupted = lambda group: signal.raise_signal(signal.SIGUSR1)  # noqa: E731
    monkeypatch.setattr(Group, "_get_sequence_number_for_group", interrupted)
    try:
        with pytest.raises(TimeoutError):
            probe.computing_device()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_gloo_job_in_which_something_else_uses_cuda_is_timed_as_ever(
    nursery: Nursery, tmp_path: Path
) -> None:
    outcomes = nursery.run(tmp_path, "distributed.py", "with-cuda", ranks=2)
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2
    for ring in read_rings(tmp_path):
        assert {record.flags & 3 for record in ring.records} == {WALL}
        assert min(record.sync_ns for record in ring.records[1:]) > 0
