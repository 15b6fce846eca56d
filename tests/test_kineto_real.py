"""Traces that torch's own profiler writes in a real two-rank job with a slow rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from probe_jobs.nurseries import Nursery
from probe_jobs.profiled_steps import SLOW_RANK, SLOW_SECONDS, STEPS
from rankscope_analyzers.profiles.kineto_files import from_kineto
from rankscope_analyzers.stragglers.diagnosis import diagnose


@pytest.mark.parametrize(
    ("fault", "kind", "column"),
    [
        ("compute", "gpu_compute", "compute_seconds"),
        ("data", "data_loader", "data_seconds"),
    ],
)
def test_a_real_profile_names_the_slow_rank_and_what_is_slow(
    nursery: Nursery, tmp_path: Path, fault: str, kind: str, column: str
) -> None:
    traces = tmp_path / "traces"
    ended = nursery.run(tmp_path / "rings", "profiled.py", str(traces), fault, ranks=2)
    assert [one.code for one in ended] == [0, 0]
    (job,) = from_kineto([traces]).jobs
    assert (job.world_size, job.notes) == (2, ())
    assert (job.records.groupby("rank").size() == STEPS).all()
    assert set(job.records["timing_source"]) == {"wall"}
    parts = job.records[["data_seconds", "compute_seconds", "sync_seconds"]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(job.records["step_seconds"].to_numpy())
    medians = job.records.groupby("rank")[[column, "sync_seconds"]].median()
    slow, peer = medians.loc[SLOW_RANK], medians.loc[1 - SLOW_RANK]
    assert slow[column] - peer[column] > SLOW_SECONDS / 2
    assert peer["sync_seconds"] - slow["sync_seconds"] > SLOW_SECONDS / 2
    (verdict,) = diagnose([job])
    assert verdict.cause is not None
    assert (verdict.cause.kind, verdict.cause.where.ranks) == (kind, (SLOW_RANK,))
