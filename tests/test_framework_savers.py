"""Checkpoints that frameworks write count once each, whatever they leave to torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from installed import skip_without
from probe_jobs.nurseries import Nursery
from rankscope_agent.contract.model import SPAN_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.span_source import RingSpanSource


@pytest.mark.parametrize("framework", ["lightning", "transformers", "accelerate"])
def test_a_frameworks_checkpoint_is_one_span(
    trainer_nursery: Nursery, tmp_path: Path, framework: str
) -> None:
    skip_without(framework, "this test trains with it")
    rings, work = tmp_path / "rings", tmp_path / "work"
    (ended,) = trainer_nursery.run(rings, "savers.py", framework, str(work), TQDM_DISABLE="1")
    assert ended.code == 0, ended.errors
    source = RingSpanSource(RingStepSource(rings, rings / "kubelet", "gpu-07"))
    spans = [dict(zip(SPAN_COLUMNS, row, strict=True)) for row in source.spans(None, 0.0)]
    assert [(span["kind"], span["outcome"], span["step"]) for span in spans] == [
        ("checkpoint_save", "done", 3),
        ("checkpoint_save", "done", 7),
    ]
