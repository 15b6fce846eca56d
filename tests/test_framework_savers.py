"""Checkpoints that frameworks write count once each, whatever they leave to torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from installed import skip_without
from probe_jobs.nurseries import Nursery
from probe_jobs.running import read_extended, read_rings
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
    assert "rankscope probe" not in ended.errors  # accelerate saves to paths that are no text
    source = RingSpanSource(RingStepSource(rings, rings / "kubelet", "gpu-07"))
    spans = [dict(zip(SPAN_COLUMNS, row, strict=True)) for row in source.spans(None, 0.0)]
    saved = [span for span in spans if span["kind"] == "checkpoint_save"]
    assert [(span["outcome"], span["step"]) for span in saved] == [("done", 3), ("done", 7)]
    others = [(span["kind"], span["step"]) for span in spans if span not in saved]
    assert others == [("evaluation", 5), ("evaluation", 7)] * (framework == "transformers")
    if framework == "transformers":
        assert_evaluated(rings)


def assert_evaluated(rings: Path) -> None:
    """Its batches, of 16 samples, are none of training, which has eight of them in a step."""
    (ring,) = read_rings(rings)
    assert max(record.samples for record in ring.records) == 8
    (extended,) = [one for one in read_extended(rings) if one.evaluation_ns]
    assert extended.other_ns >= extended.evaluation_ns
