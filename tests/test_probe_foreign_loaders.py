"""Batches of loaders that are not torch's: of libraries that the probe knows, or marked ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import rankscope_probe
from installed import skip_without
from probe_jobs.nurseries import Nursery
from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource

skip_without("torch", "these tests train with PyTorch")

SECONDS, STEPS, SAMPLES = 0.01, 12, 8
"""As in the job: importing it would import torch."""

PLACES = tuple(".".join(place) for place in rankscope_probe._LOADERS)


def trained(nursery: Nursery, folder: Path, how: str) -> list[tuple[object, ...]]:
    """Run a job and return the input time, the rest of the step and the samples of its steps."""
    (ended,) = nursery.run(folder, "foreign_loaders.py", how)
    assert (ended.code, ended.errors) == (0, "")
    assert ended.output == ("the dataset is gone\n" if how == "failing" else "")
    rows = RingStepSource(folder, folder / "kubelet", "gpu-07").steps(None, 0.0)
    columns = [STEP_COLUMNS.index(name) for name in ("data_seconds", "step_seconds", "samples")]
    return [tuple(row[column] for column in columns) for row in rows]


@pytest.mark.parametrize("how", [*PLACES, "marked", "failing"])
def test_waits_for_batches_are_input(nursery: Nursery, tmp_path: Path, how: str) -> None:
    steps = trained(nursery, tmp_path, how)
    assert len(steps) == STEPS - 1  # the first one only starts the clock
    assert all(SECONDS / 2 < data < step for data, step, _ in steps)
    assert {samples for *_, samples in steps} == {SAMPLES}


def test_what_the_program_loads_by_itself_is_unknown(nursery: Nursery, tmp_path: Path) -> None:
    steps = trained(nursery, tmp_path, "unmarked")
    assert {(data, samples) for data, _, samples in steps} == {(None, None)}


def test_a_loader_of_torch_counts_once_if_it_is_marked(nursery: Nursery, tmp_path: Path) -> None:
    steps = trained(nursery, tmp_path, "marked DataLoader")
    assert all(0 < data < step for data, step, _ in steps)
    assert {samples for *_, samples in steps} == {SAMPLES}


def test_a_marked_loop_goes_on_without_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rankscope_probe, "_probe", None)
    assert list(rankscope_probe.batches([3, 4])) == [3, 4]
