"""What the probe tells of the workers of input loaders, on real loaders, as the agent reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest

from installed import skip_without
from probe_jobs.nurseries import Nursery
from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource

skip_without("torch", "these tests train with PyTorch")

WORKERS = 2
OVERHEAD = 0.005
"""Seconds that a worker may need for a batch beside what its dataset does."""


def told(nursery: Nursery, folder: Path, what: str) -> list[float | None]:
    """Run a job and return what each of its steps says of the loader."""
    rings = folder / "rings"
    (ended,) = nursery.run(rings, "loading.py", what, str(folder))
    assert (ended.code, ended.errors) == (0, "")
    rows = RingStepSource(rings, rings / "kubelet", "gpu-07").steps(None, 0.0)
    index = STEP_COLUMNS.index("loader_seconds")
    return [row[index] for row in rows]  # type: ignore[misc]


def own(folder: Path) -> Sequence[float]:
    """Return how long each batch took by the dataset's own clock."""
    texts = (one.read_text() for one in folder.glob("worker-*.txt"))
    return [float(line) for text in texts for line in text.splitlines()]


@pytest.mark.parametrize(
    ("what", "batches"),
    [
        ("forked", 1),
        ("streamed", 1),
        ("accumulated", 2),
        ("accumulated for long", 80),
        ("evaluated", 1),
    ],
)
def test_a_loader_is_as_slow_as_its_workers_together(
    nursery: Nursery, tmp_path: Path, what: str, batches: int
) -> None:
    """A worker's own clock says how long it takes for a batch; two of them make one in half of it.

    What workers of another loader, for evaluation, have made before is not counted with it.
    """
    seconds = [one for one in told(nursery, tmp_path, what) if one is not None]
    assert len(list(tmp_path.glob("worker-*.txt"))) == WORKERS * (2 if what == "evaluated" else 1)
    least, most = (end(own(tmp_path)) * batches / WORKERS for end in (min, max))
    assert seconds
    assert least < fmean(seconds) < most + OVERHEAD


@pytest.mark.parametrize("what", ["alone", "spawned"])
def test_loaders_whose_workers_tell_nothing_leave_it_unknown(
    nursery: Nursery, tmp_path: Path, what: str
) -> None:
    seconds = told(nursery, tmp_path, what)
    assert len(seconds) > 100
    assert set(seconds) == {None}
