"""Jobs of which some steps only have compute and sync: from the probe's samples to the verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from collected_page import Page, collector
from fake_rank import FakeRank
from fake_streams import COPIES
from probe_jobs.ways import named, records_in, verdict_on
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import FLAG_SAMPLED, HistogramValue, RankIdentity
from rankscope_agent.sources.training.format import StepRecord
from rankscope_agent.sources.training.totals import RankTotals
from rankscope_analyzers.findings.finding import Finding
from ring_writer import RingWriter
from simulated_jobs import Fault, Job, diagnosed, records

TRANSFER = 3.0


def run_rank(
    directory: Path, rank: int, copies: tuple[float, ...], compute: tuple[float, ...]
) -> None:
    """Run one rank; milliseconds of each rank's copy and compute, as its peer waits for both."""
    arrivals = [copy + kernels for copy, kernels in zip(copies, compute, strict=True)]
    late = max(arrivals) - arrivals[rank]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKSCOPE_JOB_ID", "fsdp")
        patch.setenv("RANKSCOPE_NODE_NAME", "gpu-1")
        fake = FakeRank(directory, patch, rank=rank, call_ms=0.0, every=8)
        for _ in range(400):
            step_of(fake, copies[rank], compute[rank], late)


def step_of(fake: FakeRank, copy: float, compute: float, late: float) -> None:
    beside = fake.device.cuda.Stream(0)
    with fake.device.on(beside):
        fake.device.kernel(copy, COPIES)
    fake.device.training.wait_stream(beside)
    fake.device.kernel(compute)
    fake.group.allreduce(late + TRANSFER).wait()
    fake.end_step()


@pytest.mark.parametrize("slow", [0, 1])
def test_rank_with_slow_copies_is_named_with_its_cause(slow: int, tmp_path: Path) -> None:
    copies = tuple(30.0 if rank == slow else 4.0 for rank in (0, 1))
    for rank in (0, 1):
        run_rank(tmp_path, rank, copies, (40.0, 40.0))
    rows = records_in(tmp_path)
    verdict = verdict_on(rows, 2)
    assert named(verdict) == ("gpu_compute", (slow,))
    assert verdict.cause is not None
    assert "waits 30.0 ms a step for copies" in verdict.cause.summary
    assert any("compute and sync are sampled" in note for note in verdict.unobserved)
    sources = rows["timing_source"].value_counts()
    assert dict(sources) == {"sampled": 2 * 50, "none": 2 * 350}
    assert rows.loc[rows["timing_source"].eq("none"), "compute_seconds"].isna().all()


def test_slow_kernels_are_not_taken_for_slow_copies(tmp_path: Path) -> None:
    for rank in (0, 1):
        run_rank(tmp_path, rank, (4.0, 4.0), (40.0, 70.0))
    verdict = verdict_on(records_in(tmp_path), 2)
    assert named(verdict) == ("gpu_compute", (1,))
    assert verdict.cause is not None
    assert "copies" not in verdict.cause.summary


def sparse(rows: pd.DataFrame, every: int, late_rank: int = -1) -> pd.DataFrame:
    """Keep compute and sync of every so many steps; of one rank of every other one of these."""
    taken = (rows["step"] % every == 0) & (
        (rows["rank"] != late_rank) | (rows["step"] % (2 * every) == 0)
    )
    kept = rows.copy()
    parts = ["compute_seconds", "sync_seconds", "other_seconds", "cpu_wait_seconds"]
    kept.loc[~taken, [name for name in parts if name in kept.columns]] = np.nan
    kept["timing_source"] = np.where(taken, "sampled", "none")
    return kept


@pytest.fixture(scope="module")
def slow_job() -> tuple[pd.DataFrame, Finding | None]:
    """Give the records of a job with a slow rank, and what is found in all of its steps."""
    dense = records(Job(steps=1600, faults=(Fault("compute", (3,), 0.4, first_step=640),)))
    return dense, diagnosed(dense.assign(timing_source="sampled")).verdict.cause


@pytest.mark.parametrize("every", [4, 16])
@pytest.mark.parametrize("late_rank", [-1, 3, 5])
def test_fault_is_judged_by_samples_and_costs_over_all_steps(
    every: int, late_rank: int, slow_job: tuple[pd.DataFrame, Finding | None]
) -> None:
    dense, whole = slow_job
    found = diagnosed(sparse(dense, every, late_rank)).verdict.cause
    assert whole is not None
    assert found is not None
    assert (found.kind, found.where.ranks) == ("gpu_compute", (3,))
    assert found.known_cost.lost_fraction == pytest.approx(whole.known_cost.lost_fraction, abs=0.02)
    assert found.known_cost.gpu_hours == pytest.approx(whole.known_cost.gpu_hours, rel=0.06)


@pytest.mark.parametrize("seed", range(6))
def test_healthy_job_of_samples_accuses_nobody(seed: int) -> None:
    rows = sparse(records(Job(steps=1600), seed), 16, late_rank=seed)
    assert named(diagnosed(rows).verdict) is None


def record(number: int, compute_ns: int, sync_ns: int, step_ns: int = 100) -> StepRecord:
    flags = FLAG_SAMPLED | (2 if compute_ns >= 0 else 0)
    parts = (10, compute_ns, sync_ns)
    return StepRecord(number, 1, step_ns, *parts, number, 1, flags, 0, number)


def test_counters_go_on_between_samples_at_the_shares_of_the_newest() -> None:
    identity = RankIdentity(
        **dict.fromkeys(RankIdentity.__dataclass_fields__)
        | {"job_id": "job", "rank": 0, "alive": True}
    )
    totals = RankTotals(identity, 1)
    totals.add([record(1, -1, -1)], 1)
    assert (totals.compute_ns, totals.sync_ns) == (None, None)
    totals.add([record(2, 60, 30), record(3, -1, -1), record(4, -1, -1, 190)], 1)
    assert (totals.compute_ns, totals.sync_ns) == (60 + 60 + 120, 30 + 30 + 60)
    totals.add([record(5, -1, -1), record(6, 30, 60), record(7, -1, -1)], 1)
    assert (totals.compute_ns, totals.sync_ns) == (240 + 60 + 30 + 30, 120 + 30 + 60 + 60)
    assert totals.last is not None
    assert totals.last.timing_source == "none"


def test_the_sync_histogram_of_a_job_goes_on_between_samples_as_its_ranks_counters_do(
    tmp_path: Path,
) -> None:
    """RankscopeSyncShareHigh reads histograms: of 0.7 s, 80 % is sync, seen in a step of 512."""
    writer = RingWriter(tmp_path, capacity=4096)
    collecting = collector(tmp_path)
    for _ in range(3):
        times = {"step_ns": 700_000_000, "data_ns": 10_000_000}
        sample = {"compute_ns": 130_000_000, "sync_ns": 560_000_000}
        writer.step(**times, **sample, flags=FLAG_SAMPLED | 2)
        writer.step(511, **times, compute_ns=-1, sync_ns=-1, flags=FLAG_SAMPLED)
        page = Page(collecting)
        latency, sync = (
            page.value(metric, "team/job") for metric in (metrics.STEP_LATENCY, metrics.SYNC_TIME)
        )
        assert isinstance(latency, HistogramValue)
        assert isinstance(sync, HistogramValue)
        assert sync.count == latency.count == page.rank(metrics.STEPS)
        assert sync.sum == pytest.approx(0.8 * latency.sum)
        assert sync.sum == pytest.approx(page.rank(metrics.SYNC_SECONDS))
    writer.end()
