"""What the probe measures in real two-rank jobs, against faults of known size and place.

Bounds are wide: machines are noisy, and a wrong attribution is off by the whole fault.
"""

from __future__ import annotations

from statistics import median

import pytest

from probe_jobs.nurseries import Nursery
from probe_jobs.phase_names import PHASES, SLOW_RANK, STEPS
from probe_jobs.running import (
    CPU_WAIT,
    EVALUATION,
    FIRST,
    WALL,
    Record,
    Ring,
    median_ms,
    read_extended,
    read_rings,
)

SLOW_MS = 60.0
MOST_MS = 35.0  # most of the fault
LITTLE_MS = 20.0  # too little to be the fault
SETTLING_STEPS = 2  # at a phase's begin the reducer rebuilds its buckets


@pytest.fixture(scope="module")
def rings(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> list[Ring]:
    directory = tmp_path_factory.mktemp("rings")
    outcomes = nursery.run(directory, "phases.py", ranks=2)
    assert [ended.code for ended in outcomes] == [0, 0]
    assert not any("rankscope" in ended.errors for ended in outcomes)
    return read_rings(directory)


def phase_of(ring: Ring, phase: str) -> list[Record]:
    begin = PHASES.index(phase) * STEPS
    return [r for r in ring.records if begin + SETTLING_STEPS <= r.step < begin + STEPS]


def slow_and_fast(rings: list[Ring], phase: str, field: str) -> tuple[float, float]:
    slow = SLOW_RANK.get(phase, 1)
    by_rank = [median_ms(phase_of(ring, phase), field) for ring in rings]
    return by_rank[slow], by_rank[1 - slow]


def test_every_step_but_the_first_has_a_record_on_both_ranks(rings: list[Ring]) -> None:
    for rank, ring in enumerate(rings):
        assert (ring.rank, ring.world_size) == (rank, 2)
        assert [record.step for record in ring.records] == list(range(1, len(PHASES) * STEPS))


def test_times_of_a_step_add_up(rings: list[Ring]) -> None:
    for ring in rings:
        for record in ring.records:
            parts = (record.data_ns, record.compute_ns, record.sync_ns)
            assert min(parts) >= 0
            assert sum(parts) <= record.step_ns  # what is left was waited for a CPU
            assert record.flags & ~(FIRST | EVALUATION) == WALL | CPU_WAIT
            assert record.samples == 16


def test_newer_agents_account_for_every_nanosecond(rings: list[Ring]) -> None:
    """What the training thread waited for a CPU is taken out of the optimizer's time as well."""
    for ring in rings:
        for step in read_extended(ring.path.parent, ring.rank):
            parts = (step.data_ns, step.compute_ns, step.sync_ns, step.other_ns)
            assert min(parts) >= 0
            assert sum(parts) + step.cpu_wait_ns == step.step_ns


@pytest.mark.parametrize(
    ("phase", "backwards"), [("healthy", 1), ("accumulated", 2), ("accumulated_no_sync", 2)]
)
def test_backwards_of_a_step_are_its_micro_batches(
    rings: list[Ring], phase: str, backwards: int
) -> None:
    for ring in rings:
        steps = {record.step for record in phase_of(ring, phase)}
        found = read_extended(ring.path.parent, ring.rank)
        assert {s.microbatches for s in found if s.step in steps} == {backwards}


def test_evaluation_is_not_compute_for_newer_agents(rings: list[Ring]) -> None:
    for ring in rings:
        steps = {record.step for record in phase_of(ring, "evaluated")}
        found = [s for s in read_extended(ring.path.parent, ring.rank) if s.step in steps]
        assert median(s.other_ns for s in found) / 1e6 > MOST_MS
        assert median(s.compute_ns for s in found) / 1e6 < MOST_MS


def test_ranks_that_share_collectives_show_one_step_time(rings: list[Ring]) -> None:
    for phase in PHASES:
        slow, fast = slow_and_fast(rings, phase, "step_ns")
        # Ranks without a core of their own begin a step later than others.
        assert abs(slow - fast) < max(LITTLE_MS, slow / 8), phase


def test_healthy_ranks_differ_in_nothing(rings: list[Ring]) -> None:
    for field in ("data_ns", "compute_ns", "sync_ns"):
        one, other = slow_and_fast(rings, "healthy", field)
        assert abs(one - other) < LITTLE_MS, field


@pytest.mark.parametrize(
    "phase",
    [
        "slow_compute",
        "slow_buffers",
        "loss_reduced",
        "manual",
        "manual_async",
        "functional",
        "barrier",
        "accumulated",
        "accumulated_no_sync",
    ],
)
def test_late_rank_is_compute_there_and_sync_elsewhere(rings: list[Ring], phase: str) -> None:
    compute, peer_compute = slow_and_fast(rings, phase, "compute_ns")
    sync, peer_sync = slow_and_fast(rings, phase, "sync_ns")
    assert compute - peer_compute > MOST_MS
    assert peer_sync - sync > MOST_MS
    assert peer_compute < SLOW_MS


def test_slow_loader_is_data_there_and_inflates_no_compute(rings: list[Ring]) -> None:
    data, peer_data = slow_and_fast(rings, "slow_data", "data_ns")
    compute, peer_compute = slow_and_fast(rings, "slow_data", "compute_ns")
    sync, peer_sync = slow_and_fast(rings, "slow_data", "sync_ns")
    assert data - peer_data > MOST_MS
    assert peer_sync - sync > MOST_MS
    assert abs(compute - peer_compute) < LITTLE_MS


def test_evaluation_is_flagged_and_its_loading_is_not_training_data(rings: list[Ring]) -> None:
    for ring in rings:
        records = phase_of(ring, "evaluated")
        assert all(record.flags & EVALUATION for record in records)
        assert median_ms(records, "data_ns") < LITTLE_MS
        assert median_ms(records, "compute_ns") > MOST_MS
