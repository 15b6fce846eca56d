"""Which GPU a rank trains on, as the probe states it in the ring, on a fake of torch.cuda."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from fake_device import Job
from probe_jobs.running import HEADER

GPU = slice(HEADER.size + 4, HEADER.size + 20)
"""Where a ring's first page has the UUID: after the number of replica groups."""


class Optimizer:
    """An optimizer of one parameter on a device."""

    def __init__(self, index: int | None) -> None:
        device = SimpleNamespace(type="cuda", index=index)
        parameter = SimpleNamespace(device=device, numel=lambda: 1)
        self.param_groups = [{"params": [parameter], "lr": 0.1}]


def test_a_fake_tensor_does_not_begin_the_use_of_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As optimizers have in estimates of memory, in a process that forks afterwards."""
    job = Job(tmp_path, monkeypatch)
    job.cuda.initialized = False
    job.probe.step_finished(Optimizer(0), (), {})
    assert job.probe.gpu == b""
    assert "rankscope probe: AssertionError" not in capsys.readouterr().err


def test_a_program_that_ends_its_own_steps_does_not_begin_it_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch)
    job.cuda.initialized, job.probe.device = False, ""
    job.probe.ended_by_program(None, None)
    assert job.probe.device == "cpu"


@pytest.mark.parametrize(
    ("index", "capturing", "stated"),
    [(5, False, bytes(range(5, 21))), (5, True, bytes(16)), (None, False, bytes(16))],
    ids=["known", "while a graph is captured", "no device of its own"],
)
def test_the_ring_names_the_gpu_that_holds_the_parameters(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    index: int | None,
    capturing: bool,
    stated: bytes,
) -> None:
    job, optimizer = Job(tmp_path, monkeypatch), Optimizer(index)
    job.cuda.capturing = capturing
    for _ in range(3):
        job.probe.step_finished(optimizer, (), {})
    (ring,) = tmp_path.glob("*.ring")
    assert ring.read_bytes()[GPU] == stated
