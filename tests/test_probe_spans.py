"""Spans that the probe marks beside steps, on real jobs, as the agent reads them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rankscope_probe
from installed import skip_without
from probe_jobs.nurseries import Nursery
from probe_jobs.running import Outcome, read_rings
from rankscope_agent.contract.model import SPAN_COLUMNS, STEP_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.span_source import RingSpanSource

skip_without("torch", "these tests train with PyTorch")

BUSY_SECONDS = 0.05
"""What a process may wait for a core between the program's clock and ours."""


@dataclass(frozen=True)
class Told:
    """What a job's ranks wrote down, and what their rings hold: spans and steps as columns."""

    outcomes: Sequence[Outcome]
    diaries: Sequence[Sequence[dict[str, Any]]]
    spans: Sequence[dict[str, Any]]
    steps: Sequence[dict[str, Any]]

    def of(self, kind: str, rank: int = 0) -> list[dict[str, Any]]:
        return [span for span in self.spans if (span["kind"], span["rank"]) == (kind, rank)]

    def written(self, kind: str, rank: int = 0) -> list[dict[str, Any]]:
        return [line for line in self.diaries[rank] if line["kind"] == kind]


def read(rings: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    source = RingStepSource(rings, rings / "kubelet", "gpu-07")
    spans = [
        dict(zip(SPAN_COLUMNS, row, strict=True)) for row in RingSpanSource(source).spans(None, 0.0)
    ]
    steps = [dict(zip(STEP_COLUMNS, row, strict=True)) for row in source.steps(None, 0.0)]
    return spans, steps


def job(nursery: Nursery, folder: Path, what: str, ranks: int = 1) -> Told:
    rings, place = folder / "rings", folder / "work"
    place.mkdir()
    outcomes = nursery.run(rings, "saving.py", what, str(place), ranks=ranks)
    texts = [(place / f"diary-{rank}.jsonl").read_text() for rank in range(ranks)]
    diaries = [[json.loads(line) for line in text.splitlines()] for text in texts]
    return Told(outcomes, diaries, *read(rings))


def agree(spans: Sequence[dict[str, Any]], lines: Sequence[dict[str, Any]]) -> None:
    """Check that every event is there once, in order, with its outcome, and lasted as long."""
    assert [span["outcome"] for span in spans] == [line["outcome"] for line in lines]
    for span, line in zip(spans, lines, strict=True):
        assert line["seconds"] >= span["seconds"] > 0
        assert abs(span["t_start_unix_seconds"] - line["start"]) < 0.5
        assert line["seconds"] - span["seconds"] < max(0.01 * line["seconds"], BUSY_SECONDS)


def test_every_save_and_load_is_a_span_of_its_length(nursery: Nursery, tmp_path: Path) -> None:
    told = job(nursery, tmp_path, "plain")
    assert [(ended.code, ended.errors) for ended in told.outcomes] == [(0, "")]
    saves = told.of("checkpoint_save")
    agree(saves, told.written("checkpoint_save"))
    agree(told.of("checkpoint_load"), told.written("checkpoint_load"))
    assert [span["outcome"] for span in saves] == ["done", "done", "failed", "done", "done", "done"]
    assert [span["in_memory"] for span in saves] == [False, False, False, True, False, False]
    assert [span["step"] for span in saves] == [0, 3, 5, 6, 7, 11]
    sizes = {name.stem.split("-")[0]: name.stat().st_size for name in tmp_path.glob("work/*.pt")}
    named = [line.get("name") for line in told.written("checkpoint_save")]
    for span, name in zip(saves, named, strict=True):
        if name:
            assert span["bytes"] == sizes[name]
    assert len({span["target"] for span in saves}) == 6  # that into memory has none
    assert told.of("checkpoint_load")[0]["bytes"] == sizes["start"]


def test_what_a_program_marks_itself_is_a_span(nursery: Nursery, tmp_path: Path) -> None:
    told = job(nursery, tmp_path, "by_hand")
    assert [(ended.code, ended.errors) for ended in told.outcomes] == [(0, "")]
    saves = told.of("checkpoint_save")
    agree(saves, told.written("checkpoint_save"))
    assert [span["outcome"] for span in saves] == ["done", "failed", "done", "done"]
    assert [span["step"] for span in saves] == [2, 4, 7, 9]
    assert [span["bytes"] for span in saves][:3] == [1002, None, 1007]
    (slow,) = [step for step in told.steps if step["step"] == 3]
    assert slow["checkpoint_seconds"] > 0.19
    assert slow["compute_seconds"] < 0.1


def test_marking_without_a_probe_does_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import rankscope_probe

    monkeypatch.setattr(rankscope_probe, "_probe", None)
    with rankscope_probe.checkpoint(tmp_path):
        pass
    with pytest.raises(KeyError), rankscope_probe.checkpoint(tmp_path):
        raise KeyError("passed on")


def test_what_a_checkpoint_takes_is_in_the_rest_of_its_step(
    nursery: Nursery, tmp_path: Path
) -> None:
    told = job(nursery, tmp_path, "plain")
    slow = {span["step"] + 1: span for span in told.of("checkpoint_save") if span["seconds"] > 0.2}
    assert sorted(slow) == [4, 8, 12]
    for step in told.steps:
        if step["step"] in slow:
            span = slow[step["step"]]
            assert step["checkpoint_seconds"] >= span["blocked_seconds"] > 0.19
            assert step["other_seconds"] >= step["checkpoint_seconds"]
            assert step["compute_seconds"] < 0.1
        assert step["evaluation_seconds"] == 0.0


def test_one_that_is_open_is_seen_and_then_ends_in_place(nursery: Nursery, tmp_path: Path) -> None:
    place = tmp_path / "work"
    place.mkdir()
    variables = {"RANKSCOPE_RING_DIR": str(tmp_path / "rings"), "RANK": "0"}
    process = nursery.start(["saving.py", "waiting", str(place)], variables)
    try:
        deadline = time.monotonic() + 60
        while not (spans := read(tmp_path / "rings")[0]) and time.monotonic() < deadline:
            time.sleep(0.05)
        (seen,) = spans
        assert (seen["kind"], seen["outcome"]) == ("checkpoint_save", "open")
        assert (seen["seconds"], seen["bytes"], seen["step"]) == (None, None, 4)
    finally:
        (place / "go").touch()
        (ended,) = nursery.end_of([process])
    assert (ended.code, ended.errors) == (0, "")
    (over,) = read(tmp_path / "rings")[0]
    assert over["outcome"] == "done"
    assert over["t_start_unix_seconds"] == seen["t_start_unix_seconds"]


def test_killing_in_mid_write_leaves_an_interrupted_one(nursery: Nursery, tmp_path: Path) -> None:
    told = job(nursery, tmp_path, "killed", ranks=2)
    assert [ended.code for ended in told.outcomes] == [-9, -9]
    for rank in (0, 1):
        saves = told.of("checkpoint_save", rank)
        assert [span["outcome"] for span in saves] == ["done", "interrupted"]
        assert saves[1]["seconds"] is None


def test_a_checkpoint_after_sigterm_is_known_as_such(nursery: Nursery, tmp_path: Path) -> None:
    told = job(nursery, tmp_path, "terminated")
    assert [(ended.code, ended.errors) for ended in told.outcomes] == [(0, "")]
    saves = told.of("checkpoint_save")
    agree(saves, told.written("checkpoint_save"))
    assert [span["after_sigterm"] for span in saves] == [False, True]
    assert [span["outcome"] for span in saves] == ["done", "done"]


def test_distributed_checkpoints_count_once_on_each_rank(nursery: Nursery, tmp_path: Path) -> None:
    told = job(nursery, tmp_path, "distributed", ranks=2)
    assert [ended.code for ended in told.outcomes] == [0, 0], told.outcomes
    for rank in (0, 1):
        saves = told.of("checkpoint_save", rank)
        assert [(span["outcome"], span["beside_training"]) for span in saves] == [
            ("done", False),
            ("done", True),
        ]
        agree(saves[:1], told.written("checkpoint_save", rank))
        agree(told.of("checkpoint_load", rank), told.written("checkpoint_load", rank))
        agree(told.of("checkpoint_staging", rank), told.written("checkpoint_staging", rank))
        shards = sum(path.stat().st_size for path in tmp_path.glob(f"work/first/__{rank}_*"))
        assert saves[0]["bytes"] in (shards, None)  # a rank with nothing to write has no file
        assert saves[1]["blocked_seconds"] is None
    assert told.of("checkpoint_save", 0)[0]["target"] == told.of("checkpoint_save", 1)[0]["target"]
    written = [told.of("checkpoint_save", rank)[0]["bytes"] for rank in (0, 1)]
    assert any(written)


def test_evaluations_are_marked_and_what_is_saved_within_them(
    nursery: Nursery, tmp_path: Path
) -> None:
    told = job(nursery, tmp_path, "evaluate")
    assert [(ended.code, ended.errors) for ended in told.outcomes] == [(0, "")]
    first, second = told.of("evaluation")
    agree([first], told.written("evaluation"))
    assert (first["outcome"], second["outcome"]) == ("done", "done")
    (save,) = told.of("checkpoint_save")
    agree([save], told.written("checkpoint_save"))
    (step,) = [step for step in told.steps if step["step"] == 5]
    assert step["evaluation_seconds"] > 0.2
    assert step["evaluation_seconds"] + step["checkpoint_seconds"] <= step["other_seconds"]
    assert step["compute_seconds"] < 0.1


def test_loading_samples_is_no_checkpoint(nursery: Nursery, tmp_path: Path) -> None:
    told = job(nursery, tmp_path, "samples")
    assert [(ended.code, ended.errors) for ended in told.outcomes] == [(0, "")]
    assert [span["kind"] for span in told.spans] == ["checkpoint_save"]
    assert len(told.steps) == 11


def test_loading_samples_after_a_loader_within_is_none(nursery: Nursery, tmp_path: Path) -> None:
    told = job(nursery, tmp_path, "samples_of_nested")
    assert [(ended.code, ended.errors) for ended in told.outcomes] == [(0, "")]
    assert [span["kind"] for span in told.spans] == ["checkpoint_save"]


def test_a_checkpoint_is_told_from_samples_that_a_thread_loads(
    nursery: Nursery, tmp_path: Path
) -> None:
    told = job(nursery, tmp_path, "samples_beside")
    assert [(ended.code, ended.errors) for ended in told.outcomes] == [(0, "")]
    agree(told.of("checkpoint_load"), told.written("checkpoint_load"))


def test_loads_in_each_step_are_samples_after_the_first_ones(
    nursery: Nursery, tmp_path: Path
) -> None:
    told = job(nursery, tmp_path, "samples_in_loop")
    assert [(ended.code, ended.errors) for ended in told.outcomes] == [(0, "")]
    *first, last = told.of("checkpoint_load")
    assert len(first) == rankscope_probe._RECURRING
    agree([last], told.written("checkpoint_load"))


def test_neither_is_loading_samples_in_workers(nursery: Nursery, tmp_path: Path) -> None:
    told = job(nursery, tmp_path, "samples_of_workers")
    assert [(ended.code, ended.errors) for ended in told.outcomes] == [(0, "")]
    assert [one.read_text() for one in tmp_path.rglob("worker-*")] == ["0", "0"]


def test_compiling_is_marked(nursery: Nursery, tmp_path: Path) -> None:
    told = job(nursery, tmp_path, "compiled")
    assert [ended.code for ended in told.outcomes] == [0]
    assert told.of("compile")
    assert {span["outcome"] for span in told.of("compile")} == {"done"}


@pytest.mark.parametrize("told", [(), (object(),)], ids=["torch 2.6", "torch 2.13"])
def test_what_dynamo_tells_of_a_compile_differs_by_version_and_is_not_needed(
    told: tuple[Any, ...],
) -> None:
    spans: Any = object.__new__(rankscope_probe._Spans)
    begun, closed = object(), []
    spans.compiling, spans.made = [], lambda kind: begun
    spans.put = lambda span, outcome: None
    spans.close_now = lambda span, outcome, now: closed.append((span, outcome))
    spans.compile_begins(*told)
    spans.compile_ends(*told)
    assert closed == [(begun, rankscope_probe._DONE)]


def test_an_older_probes_ring_has_no_spans_and_a_newer_ones_is_read_as_ever(
    nursery: Nursery, tmp_path: Path
) -> None:
    told = job(nursery, tmp_path, "plain")
    for path in (tmp_path / "rings").glob("*.span"):
        path.unlink()
    spans, steps = read(tmp_path / "rings")
    assert spans == []
    assert steps == list(told.steps)
    assert len(read_rings(tmp_path / "rings")[0].records) == len(steps)


@pytest.mark.parametrize("damage", ["garbage", "short", "other", "fifo"])
def test_a_damaged_file_of_spans_costs_the_spans_alone(
    nursery: Nursery, tmp_path: Path, damage: str
) -> None:
    told = job(nursery, tmp_path, "plain")
    (path,) = (tmp_path / "rings").glob("*.span")
    content = path.read_bytes()
    path.unlink()
    if damage == "fifo":
        os.mkfifo(path)
    else:
        other = content[:24] + b"\1" * 8 + content[32:]
        short, garbage = content[:1000], content[:64] + b"\xff" * (len(content) - 64)
        path.write_bytes({"garbage": garbage, "short": short, "other": other}[damage])
    assert read(tmp_path / "rings") == ([], list(told.steps))
