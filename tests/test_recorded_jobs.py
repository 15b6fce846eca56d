"""Recorded running jobs, numbers alone, whose answers are known; and what their records may lack.

`NN_FAULT_RANK` are demo runs of four gloo ranks on a busy two-core machine; the last number is the
slow rank. `ck3` is a real run of two ranks whose second one is slow while the first one writes
checkpoints; `syn*` are made up alike, with steps of a second and checkpoints of 30.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnosis
from suite_jobs import fault, made, running

RECORDED = sorted((Path(__file__).parent / "fixtures" / "running_jobs").glob("*.parquet"))
CAUSES = {"slow-compute": "gpu_compute", "slow-data": "data_loader"}


def verdict_on(rows):
    return diagnosis(JobRecords("job", rows, None, (), live=True)).verdict


def said(rows):
    cause = verdict_on(rows).cause
    return cause and (cause.kind, cause.where.ranks)


def recorded(path):
    rows = pd.read_parquet(path)
    timing = "wall" if path.stem[:2].isdigit() else None
    return rows.assign(node="node", gpu=rows["rank"], timing_source=timing)


def answer(path):
    if not path.stem[:2].isdigit():
        return "gpu_compute", (1,)
    _, injected, rank = path.stem.split("_")
    return (CAUSES[injected], (int(rank),)) if injected in CAUSES else None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_jobs_get_the_answer_that_is_known(path):
    assert said(recorded(path)) == answer(path)


def test_all_sixteen_recorded_jobs_are_there():
    assert len(RECORDED) == 16


@pytest.mark.parametrize("name", ["ck3", "syn", "syn8", "syn16"])
def test_what_the_first_rank_does_while_all_others_wait_is_told_and_blamed_on_nobody(name):
    (path,) = (path for path in RECORDED if path.stem == name)
    verdict = verdict_on(recorded(path))
    (aside,) = verdict.asides
    assert "all ranks waited for the first one" in aside
    assert not any(0 in found.where.ranks for found in (verdict.cause, *verdict.others))


def renumbered(rows, order):
    """Return records of the same job whose ranks are numbered in another order."""
    return rows.assign(rank=np.asarray(order)[rows["rank"].to_numpy()])


FAULTS = {
    "gpu_compute": fault("gpu_compute", "gpu", 1.5, last=220),
    "data_loader": fault("data_loader", "rank", 0.5, last=220),
    "network_link": fault("network_link", "rank", 5.0, last=220),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("timing", ["kernel", "wall"])
def test_ranks_of_any_number_are_found_by_their_groups(kind, timing):
    simulated = made(FAULTS[kind], timing=timing)
    (label,) = simulated.labels["faults"]
    order = np.random.default_rng(3).permutation(32)
    found, ranks = said(renumbered(running(simulated), order))
    assert found == kind
    assert ranks[0] in {int(order[rank]) for rank in label["accept_ranks"]}


def test_a_heavy_stage_is_named_by_its_number_without_metadata():
    simulated = made(fault("partition_imbalance", "stage", 1.5, stage=1, last=220))
    cause = verdict_on(running(simulated)).cause
    assert (cause.kind, cause.where.stage, cause.where.ranks) == ("partition_imbalance", 1, ())


@pytest.mark.parametrize(
    "groups",
    [
        {"dp_group": 7, "tp_group": 7, "pp_stage": 7},
        {"dp_group": -1},
        {"tp_group": np.nan},
        {"pp_stage": 10**12},
    ],
)
def test_groups_that_make_no_grid_leave_ranks_to_be_compared_with_all_others(groups):
    simulated = made(FAULTS["data_loader"], tensor=1, pipeline=1)
    assert said(running(simulated, **groups)) == ("data_loader", (13,))


def test_ranks_that_are_timed_otherwise_are_left_out_of_what_compute_is_compared_with():
    simulated = made(tensor=1, pipeline=1)
    rows = running(simulated)
    odd = rows["rank"] == 5
    rows.loc[odd, "timing_source"] = "wall"
    rows.loc[odd, "compute_seconds"] *= 1.4
    rows.loc[odd, "sync_seconds"] = 0.0
    assert said(rows) is None
    rows["timing_source"] = "kernel"
    assert said(rows) == ("gpu_compute", (5,))


def test_ranks_that_join_later_are_compared_from_then_on():
    simulated = made(fault("gpu_compute", "gpu", 1.5, last=220), tensor=1, pipeline=1)
    rows = running(simulated)
    late = rows[~((rows["rank"] >= 8) & (rows["step"] < 40))]
    assert said(late) == ("gpu_compute", (13,))


@pytest.mark.parametrize("missing", ["compute_seconds", "sync_seconds", "data_seconds"])
def test_classes_that_cannot_be_told_are_named_and_make_health_less_certain(missing):
    whole = verdict_on(running(made()))
    less = verdict_on(running(made()).drop(columns=missing))
    assert (whole.cause, less.cause) == (None, None)
    assert less.confidence < whole.confidence
    assert any("cannot be detected without these times" in one for one in less.unobserved)
    assert not any("cannot be detected" in one for one in whole.unobserved)


def test_a_restart_keeps_the_healthy_beginning_of_a_slow_job():
    slow = fault("global_slowdown", "compute", 1.4, first=100, last=220)
    simulated = made(slow, restart=140)
    rows = running(simulated)
    rows["attempt"] = (rows["t_start_unix_seconds"] > rows["t_start_unix_seconds"].median()) * 0
    cause = verdict_on(rows).cause
    assert cause.kind == "global_slowdown"
    assert cause.until_unix_seconds is None
