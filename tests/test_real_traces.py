"""The analyzers on traces of real jobs, where these lie beside the checkout."""

from pathlib import Path

import pytest

from rankscope_analyzers.steps import job_records, stored_traces
from rankscope_analyzers.steps.layout import layout
from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.stragglers.diagnosis import diagnose

TRACES = Path(__file__).parents[2] / "shared" / "corpora" / "real_traces"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no real traces at {TRACES}")


def verdict_of(name):
    (said,) = diagnose(stored_traces.from_traces([TRACES / name]).jobs)
    return said


def test_the_slowed_worker_is_named_although_others_wait_little_too():
    cause = verdict_of("AR").cause
    assert (cause.kind, cause.where.ranks) == ("gpu_compute", (0,))
    assert cause.cost.lost_fraction == pytest.approx(1 - 1 / 1.97, abs=0.06)


@pytest.mark.parametrize("name", ["ST", "SE"])
def test_uneven_work_blames_no_gpu(name):
    said = verdict_of(name)
    assert said.cause is None or not said.cause.where.ranks


@pytest.mark.parametrize(
    ("name", "kind", "ranks", "stage"),
    [
        ("AR", "gpu_compute", (0,), -1),
        ("ST", "partition_imbalance", (), 3),
        ("SE", "partition_imbalance", (), -1),
    ],
)
def test_the_incremental_analysis_says_what_is_slow(name, kind, ranks, stage):
    job = job_records.table(TRACES / name)
    (said,) = feed.detect(job.records, layout(job.meta, 0)).incidents
    assert (said.kind, said.ranks, said.stage) == (kind, ranks, stage)
