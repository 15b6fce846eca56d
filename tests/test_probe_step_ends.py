"""Where the probe ends steps: with unusual optimizers, with scalers, and in restarted processes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from installed import skip_without
from probe_jobs.nurseries import Nursery
from probe_jobs.running import FIRST, SKIPPED, Ring, read_only_ring, read_rings
from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.reported import Signal, parse_signals

skip_without("torch", "these tests train with PyTorch")

STEPS = 10


@pytest.fixture(scope="module")
def boundaries(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ring]:
    """Give the ring that a training loop of `boundaries.py` leaves, run once for all tests."""

    @functools.cache
    def run(case: str) -> Ring:
        directory = tmp_path_factory.mktemp("rings")
        (ended,) = nursery.run(directory, "boundaries.py", case)
        assert (ended.code, ended.errors) == (0, "")
        return read_only_ring(directory)

    return run


def skips(ring: Ring) -> list[int]:
    return [record.step for record in ring.records if record.flags & SKIPPED]


@pytest.mark.parametrize(
    "case",
    [
        "extended",
        "extended_later",
        "short_trials",
        "two_scaled",
        "two_scalers",
        "left_out",
        "empty_shard",
    ],
)
def test_every_period_between_steps_is_one_record(
    boundaries: Callable[[str], Ring], case: str
) -> None:
    assert [record.step for record in boundaries(case).records] == list(range(1, STEPS))


@pytest.mark.parametrize("case", ["two_scaled", "two_scalers"])
def test_only_an_update_that_the_primary_optimizer_missed_is_a_skipped_step(
    boundaries: Callable[[str], Ring], case: str
) -> None:
    ring = boundaries(case)
    assert skips(ring) == [3]
    signals = parse_signals(ring.path.with_suffix(".sig").read_bytes()[64:])
    assert signals[Signal.SKIPPED_UPDATES].value == 1


def test_an_update_that_the_program_leaves_out_is_skipped_as_well(
    boundaries: Callable[[str], Ring],
) -> None:
    assert skips(boundaries("left_out")) == [3, 6]


def test_a_scaler_with_an_update_of_its_own_is_seen_to_skip(
    nursery: Nursery, tmp_path: Path
) -> None:
    outcomes = nursery.run(tmp_path, "distributed.py", "sharded-scaler", ranks=2)
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2
    rings = read_rings(tmp_path)
    assert [len(ring.records) for ring in rings] == [STEPS - 1] * 2
    assert [skips(ring) for ring in rings] == [[3]] * 2


def test_a_process_that_becomes_another_rank_says_so(nursery: Nursery, tmp_path: Path) -> None:
    outcomes = nursery.run(
        tmp_path, "distributed.py", "renumbered", ranks=2, RANKSCOPE_JOB_ID="again"
    )
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2
    rings = sorted(read_rings(tmp_path), key=lambda ring: (ring.pid, ring.path))
    first, second = {ring.pid: ring.rank for ring in rings[::2]}, rings[1::2]
    assert sorted(first.values()) == [0, 1]
    for ring in second:
        assert ring.rank == 1 - first[ring.pid]
        assert [record.step for record in ring.records] == list(range(1, STEPS + 1))
        assert ring.records[0].flags & FIRST
        assert min(record.sync_ns for record in ring.records) > 0
    assert [len(ring.records) for ring in rings[::2]] == [STEPS - 1] * 2
    steps = [dict(zip(STEP_COLUMNS, row, strict=True)) for row in agent_steps(tmp_path)]
    ranks = [step["rank"] for step in steps]
    assert (ranks.count(0), ranks.count(1)) == (2 * STEPS - 1, 2 * STEPS - 1)


def test_a_process_that_is_used_for_another_job_says_so(nursery: Nursery, tmp_path: Path) -> None:
    outcomes = nursery.run(tmp_path, "distributed.py", "used-again", ranks=2)
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2
    rings = sorted(read_rings(tmp_path), key=lambda ring: (ring.pid, ring.path))
    first, second = {ring.job_id for ring in rings[::2]}, {ring.job_id for ring in rings[1::2]}
    assert (len(first), len(second), len(first | second)) == (1, 1, 2)
    assert [len(ring.records) for ring in rings] == [STEPS - 1, STEPS] * 2


def test_a_process_that_leaves_the_others_and_lives_on_has_ended_its_ring(
    nursery: Nursery, tmp_path: Path
) -> None:
    outcomes = nursery.run(tmp_path, "distributed.py", "left", ranks=2)
    seen = [(ended.code, ended.errors, ended.output.split()) for ended in outcomes]
    assert seen == [(0, "", ["True", "False"])] * 2
    assert [len(ring.records) for ring in read_rings(tmp_path)] == [STEPS - 1] * 2


@pytest.mark.parametrize(
    ("way", "rings"), [("mesh", "1"), ("checkpoints", "0")], ids=["a rank", "its checkpoints"]
)
def test_a_rank_is_seen_once_it_has_joined_and_what_writes_its_checkpoints_is_none(
    nursery: Nursery, tmp_path: Path, way: str, rings: str
) -> None:
    outcomes = nursery.run(tmp_path, "joining.py", way, ranks=2)
    assert [(ended.code, ended.output) for ended in outcomes] == [(0, f"{rings}\n")] * 2


def agent_steps(rings: Path) -> list[tuple[object, ...]]:
    return list(RingStepSource(rings, rings / "kubelet", "gpu-07").steps(None, 0.0))
