"""What training says of itself through the probe: losses, counts, and the checkpoints' store."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import pytest

from installed import skip_without
from probe_jobs.nurseries import Nursery
from probe_jobs.running import JOBS, Outcome, read_only_ring
from rankscope_agent.contract.model import SPAN_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.reported import (
    SHARD_NAMES,
    Signal,
    Signals,
    parse_signals,
)
from rankscope_agent.sources.training.span_source import RingSpanSource

skip_without("torch", "these tests train with PyTorch")

STEPS = 30


def signals_in(rings: Path) -> Signals:
    (path,) = rings.glob("*.sig")
    content = path.read_bytes()
    assert content[:8] == b"RKSCSIGN"
    return parse_signals(content[64:])


def job(
    nursery: Nursery, folder: Path, what: str, **extra: str
) -> tuple[Outcome, dict[str, Any], Signals]:
    """Run a job; return how it ended, what it said, and what the agent reads of it."""
    rings, place = folder / "rings", folder / "work"
    place.mkdir()
    (ended,) = nursery.run(rings, "signalling.py", what, str(place), **extra)
    assert ended.code == 0, ended.errors
    return ended, json.loads((place / "said.json").read_text()), signals_in(rings)


def test_losses_are_the_runs_own_though_no_tensor_is_asked(
    nursery: Nursery, tmp_path: Path
) -> None:
    ended, said, signals = job(nursery, tmp_path, "tensors")
    assert ended.errors == ""
    assert signals[Signal.LOSSES].value == STEPS
    assert signals[Signal.NOT_FINITE].value == 2
    assert signals[Signal.NOT_FINITE].step == 12
    assert signals[Signal.LOSS].value == pytest.approx(said["losses"][-1], rel=1e-6)
    finite = [loss for loss in said["losses"] if math.isfinite(loss)]
    assert min(finite) < signals[Signal.LOSS_LEVEL].value < max(finite)
    assert signals[Signal.PARAMETERS].value == 9
    assert signals[Signal.LEARNING_RATE].value == 0.01


def test_losses_are_copied_whatever_device_and_mode_a_program_has_chosen(
    nursery: Nursery, tmp_path: Path
) -> None:
    ended, said, signals = job(nursery, tmp_path, "elsewhere")
    assert ended.errors == ""
    assert signals[Signal.LOSSES].value == STEPS
    assert signals[Signal.LOSS].value == pytest.approx(said["losses"][-1], rel=1e-6)


def test_losses_in_memory_of_the_cpu_are_taken_as_they_are_now(
    nursery: Nursery, tmp_path: Path
) -> None:
    ended, said, signals = job(nursery, tmp_path, "plain")
    assert ended.errors == ""
    assert signals[Signal.LOSSES].value == STEPS
    assert signals[Signal.LOSS].value == said["losses"][-1]
    level = signals[Signal.LOSS_LEVEL].value
    assert min(said["losses"]) < level < max(said["losses"])
    assert Signal.NOT_FINITE not in signals


def test_numbers_of_numpy_are_losses(nursery: Nursery, tmp_path: Path) -> None:
    skip_without("numpy", "this test hands its numbers over")
    ended, said, signals = job(nursery, tmp_path, "numbers")
    assert ended.errors == ""
    assert signals[Signal.LOSSES].value == STEPS
    assert signals[Signal.LOSS].value == said["losses"][-1]


def test_what_the_first_loss_came_from_that_was_not_finite_is_told(
    nursery: Nursery, tmp_path: Path
) -> None:
    ended, _, signals = job(nursery, tmp_path, "sharded")
    assert ended.errors == ""
    assert signals[Signal.NOT_FINITE].value == 11
    assert signals[Signal.NOT_FINITE_SINCE].value == 19  # not 29: the weights are NaN since
    assert signals[Signal.SHARDS].value == 2
    names = (signals[kind].value for kind in SHARD_NAMES if kind in signals)
    assert list(names) == [zlib.crc32(b"train-1.tar"), zlib.crc32(b"aux-1.tar")]


def test_handing_losses_over_changes_nothing_in_training(nursery: Nursery, tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    _, said, _ = job(nursery, tmp_path / "with", "tensors")
    _, silent, signals = job(nursery, tmp_path / "without", "silent")
    assert said["weights"] == silent["weights"]
    assert Signal.LOSSES not in signals


def test_steps_that_the_program_ends_are_its_steps(nursery: Nursery, tmp_path: Path) -> None:
    ended, _, signals = job(nursery, tmp_path, "marked")
    assert ended.errors == ""
    records = read_only_ring(tmp_path / "rings").records
    assert len(records) == STEPS + 1  # one ended before the program said where they do
    assert {record.samples for record in records[1:]} == {4}
    assert all(record.step_ns > 5_000_000 for record in records[1:])
    assert signals[Signal.TOKENS].value == 32 * STEPS
    assert signals[Signal.LEARNING_RATE].value == pytest.approx(0.5 / STEPS)
    assert signals[Signal.EPOCH].value == STEPS / 4


def test_updates_that_a_scaler_skips_are_counted(nursery: Nursery, tmp_path: Path) -> None:
    _, _, signals = job(nursery, tmp_path, "scaled")
    assert signals[Signal.SKIPPED_UPDATES].value == 2


def test_a_worker_of_whose_death_the_program_hears_nothing_is_counted_as_its_loader_ends(
    nursery: Nursery, tmp_path: Path
) -> None:
    ended, _, signals = job(nursery, tmp_path, "abandoned")
    assert ended.errors == ""
    assert signals[Signal.DEAD_WORKERS].value == 1


def test_a_loader_worker_that_dies_is_counted_once(nursery: Nursery, tmp_path: Path) -> None:
    _, _, signals = job(nursery, tmp_path, "workers")
    assert signals[Signal.DEAD_WORKERS].value == 1
    assert len(read_only_ring(tmp_path / "rings").records) == 24  # the program goes on


def test_what_is_no_loss_costs_nothing_but_a_line(nursery: Nursery, tmp_path: Path) -> None:
    ended, _, signals = job(nursery, tmp_path, "odd")
    assert len(ended.errors.splitlines()) == 1
    assert signals[Signal.LOSSES].value == 4  # True and 2, twice
    assert len(read_only_ring(tmp_path / "rings").records) == 13


def test_losses_within_what_is_compiled_are_taken(nursery: Nursery, tmp_path: Path) -> None:
    _, said, signals = job(nursery, tmp_path, "compiled")
    assert signals[Signal.LOSSES].value == STEPS
    assert signals[Signal.LOSS].value == pytest.approx(said["losses"][-1], rel=1e-6)


def test_without_a_probe_the_calls_do_nothing(
    nursery: Nursery, bare_nursery: Nursery, tmp_path: Path
) -> None:
    (ended,) = nursery.run(
        tmp_path / "rings", "signalling.py", "marked", str(tmp_path), RANKSCOPE_RING_DIR="/proc/1"
    )
    assert ended.code == 0, ended.errors
    command = ["loaded.py", str(JOBS / "signalling.py"), "marked", str(tmp_path)]
    (ended,) = bare_nursery.run(tmp_path / "rings", *command, RANKSCOPE_PROBE="0")
    assert (ended.code, ended.errors) == (0, "")
    assert not list(tmp_path.glob("rings/*"))


def test_a_checkpoint_says_how_much_room_is_left_beside_it(
    nursery: Nursery, tmp_path: Path
) -> None:
    ended, _, signals = job(nursery, tmp_path, "saving")
    assert ended.errors == ""
    assert 1 <= signals[Signal.CHECKPOINTS_KEPT].value <= 4
    assert 0 < signals[Signal.STORE_FREE].value < signals[Signal.STORE_SIZE].value
    source = RingStepSource(tmp_path / "rings", tmp_path / "kubelet", "gpu-07")
    spans = [
        dict(zip(SPAN_COLUMNS, row, strict=True)) for row in RingSpanSource(source).spans(None, 0.0)
    ]
    files = sorted((tmp_path / "work").glob("step_*.pt"))
    assert [span["bytes"] for span in spans] == [file.stat().st_size for file in files]


def test_a_mount_that_hangs_holds_nobody_up(nursery: Nursery, tmp_path: Path) -> None:
    ended, said, signals = job(nursery, tmp_path, "hung")
    assert ended.errors == ""
    assert said["asked"] == [False]  # once, and not in the training thread
    assert said["answered"] == 0  # by the end of training
    assert said["threads"] == 2
    assert Signal.STORE_FREE not in signals
    assert len(read_only_ring(tmp_path / "rings").records) == 39


@pytest.mark.parametrize("framework", ["transformers", "lightning"])
def test_a_frameworks_callback_is_pickled_with_its_trainer(
    trainer_nursery: Nursery, tmp_path: Path, framework: str
) -> None:
    """As spawning ranks from a notebook does."""
    skip_without(framework, "this test makes its callback")
    (ended,) = trainer_nursery.run(tmp_path, "pickled_callback.py", framework)
    assert (ended.code, ended.errors) == (0, "")


@pytest.mark.parametrize("framework", ["transformers", "lightning"])
def test_a_frameworks_callback_hands_over_what_the_framework_logs(
    trainer_nursery: Nursery, tmp_path: Path, framework: str
) -> None:
    skip_without(framework, "this test trains with it")
    command = ["callbacks.py", framework, str(tmp_path)]
    (ended,) = trainer_nursery.run(tmp_path / "rings", *command, TQDM_DISABLE="1")
    assert ended.code == 0, ended.errors
    logged = json.loads((tmp_path / "logged.json").read_text())
    signals = signals_in(tmp_path / "rings")
    assert signals[Signal.LOSSES].value == len(logged["losses"])
    assert signals[Signal.LOSS].value == pytest.approx(logged["losses"][-1], rel=0.01)
    assert signals[Signal.EPOCH].value == pytest.approx(logged["epoch"])
    if "tokens" in logged:
        assert signals[Signal.TOKENS].value == logged["tokens"] > 0
