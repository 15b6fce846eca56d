"""An interrupt that arrives amid the probe, as in a notebook, costs what it interrupts alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from installed import skip_without
from probe_jobs.nurseries import Nursery
from rankscope_agent.contract.model import SPAN_COLUMNS, STEP_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.span_source import RingSpanSource

skip_without("torch", "these tests train with PyTorch")

STEPS = 4
"""Of the job, before the interrupt and after it; the first leaves no record."""


def spans(rings: Path) -> list[tuple[object, ...]]:
    """Return outcome and size of each span, as the agent reads them."""
    source = RingSpanSource(RingStepSource(rings, rings / "kubelet", "gpu-07"))
    read = [dict(zip(SPAN_COLUMNS, row, strict=True)) for row in source.spans(None, 0.0)]
    return [(span["outcome"], span["bytes"]) for span in read if span["kind"] == "checkpoint_save"]


def test_backward_passes_after_one_are_seen(nursery: Nursery, tmp_path: Path) -> None:
    outcomes = nursery.run(tmp_path, "interrupted.py", "backward", str(tmp_path), ranks=2)
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2
    source = RingStepSource(tmp_path, tmp_path / "kubelet", "gpu-07")
    place = STEP_COLUMNS.index("microbatches")
    seen = [row[place] for row in source.steps(None, 0.0)]
    before, after = [1] * (STEPS - 1), [2, *[1] * (STEPS - 1)]  # the first repeats its pass
    assert seen == [*before, *after] * 2


@pytest.mark.parametrize(
    ("way", "outcomes"),
    [("save", ["failed", "done"]), ("marked", ["failed", "done"]), ("look", ["done", "done"])],
)
def test_saves_after_one_are_spans_of_their_own(
    nursery: Nursery, tmp_path: Path, way: str, outcomes: list[str]
) -> None:
    rings, work = tmp_path / "rings", tmp_path / "work"
    work.mkdir()
    (ended,) = nursery.run(rings, "interrupted.py", way, str(work), finalized=True)
    assert (ended.code, ended.errors) == (0, "")
    seen = spans(rings)
    assert [outcome for outcome, _ in seen] == outcomes
    assert seen[-1][1] == (work / "whole.pt").stat().st_size
