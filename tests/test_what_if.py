"""What a job loses against two ideals: all ranks equal, and stage weights kept."""

import pytest

from rankscope_analyzers.reports import verdict_json
from rankscope_analyzers.steps import frames
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.steps.layout import Layout, layout
from rankscope_analyzers.stragglers import what_if
from rankscope_analyzers.stragglers.diagnosis import diagnose
from simulated_jobs import Fault, Job, records
from suite_jobs import fault, made

QUIET = {
    "missing": 0.0,
    "checkpoint_period": 0,
    "silicon": 0.0,
    "kernel_noise": 0.001,
    "step_length_noise": 0.0,
    "replica_length_noise": 0.0,
    "steps": 120,
}


def ideals(*faults, **changes):
    simulated = made(*faults, **(QUIET | changes))
    job = layout(simulated.meta, 0)
    frame = frames.build("job", simulated.records, job.world)
    return what_if.ideals(frame, job), simulated.labels["faults"]


@pytest.mark.parametrize("timing", ["kernel", "wall"])
def test_a_slow_gpu_costs_the_same_against_both_ideals(timing):
    found, (label,) = ideals(fault("gpu_compute", "gpu", 1.5, first=0, last=120), timing=timing)
    kept = found.stage_weights_kept
    assert kept.lost_fraction == pytest.approx(label["lost_fraction"], abs=0.03)
    assert found.all_equal.lost_fraction == pytest.approx(kept.lost_fraction, abs=0.02)
    assert kept.slowdown == pytest.approx(1 / (1 - kept.lost_fraction))


@pytest.mark.parametrize("timing", ["kernel", "wall"])
def test_a_heavy_stage_costs_nothing_where_stage_weights_are_kept(timing):
    heavy = fault("partition_imbalance", "stage", 1.5, first=0, last=120, stage=0)
    found, _ = ideals(heavy, timing=timing)
    assert found.stage_weights_kept.lost_fraction < 0.02
    assert found.all_equal.lost_fraction > 0.05


def test_a_healthy_job_loses_nothing():
    found, _ = ideals()
    assert found.all_equal.lost_fraction < 0.04


def test_the_gpu_hours_are_those_of_all_ranks():
    rows = records(Job(ranks=8, steps=200, faults=(Fault("compute", (3,), 0.5),)))
    frame = frames.build("job", rows)
    found = what_if.ideals(frame, Layout(8, 1, 1, 1, False))
    lasted = rows[rows["rank"] == 0]["step_seconds"][frame.usable].sum()
    assert found.all_equal.gpu_hours == pytest.approx(
        found.all_equal.lost_fraction * lasted * 8 / 3600, rel=0.01
    )


def test_a_job_without_compute_times_has_no_ideal():
    rows = records(Job(ranks=4, steps=60)).drop(columns="compute_seconds")
    (said,) = diagnose([JobRecords("job", rows, 4, (), live=True)])
    assert said.what_if is None
    assert verdict_json.as_object(said)["what_if"] is None


def test_both_ideals_are_reported():
    simulated = made(
        fault("partition_imbalance", "stage", 1.5, first=0, last=120, stage=1), **QUIET
    )
    job = JobRecords("job-a", simulated.records, 32, (), live=False, meta=simulated.meta)
    (said,) = diagnose([job])
    shown = verdict_json.as_object(said)["what_if"]
    assert set(shown) == {"all_equal", "stage_weights_kept"}
    assert set(shown["all_equal"]) == {"slowdown", "lost_fraction", "gpu_hours_lost"}


@pytest.mark.parametrize(
    ("known", "steps", "answered"),
    [(8, 60, True), (5, 60, True), (4, 60, True), (3, 60, False), (8, 11, False), (8, 20, True)],
)
def test_few_known_ranks_or_steps_stand_for_nothing(known, steps, answered):
    rows = records(Job(ranks=8, steps=steps))
    rows.loc[rows["rank"] >= known, "compute_seconds"] = float("nan")
    frame = frames.build("job", rows, 8)
    assert (what_if.ideals(frame, layout({}, 8)) is not None) is answered
