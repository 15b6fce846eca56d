"""Synchronous data-parallel jobs as step records, with faults whose answer is known.

A step lasts until its busiest rank has arrived and the gradients are exchanged; what a rank does
not spend on input and compute it spends waiting. Everything is seeded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import Diagnosis, Follower, diagnosis

START_UNIX_SECONDS = 1_760_000_000.0


@dataclass(frozen=True)
class Fault:
    """Extra seconds for some ranks in some steps; `share` of these steps are hit."""

    kind: str  # "compute", "data", "cpu" (waiting for one), "transfer" (of all groups of the ranks)
    ranks: tuple[int, ...]
    seconds: float
    first_step: int = 0
    last_step: int = 1_000_000
    share: float = 1.0


@dataclass(frozen=True)
class Job:
    """Shape of a simulated job; times in seconds a step, noise as a share of them."""

    ranks: int = 8
    steps: int = 200
    compute: float = 1.0
    data: float = 0.02
    transfer: float = 0.15
    noise: float = 0.01
    groups: int = 1
    ranks_per_node: int = 8
    warm_up: int = 3
    faults: tuple[Fault, ...] = field(default=())


def records(job: Job, seed: int = 0) -> pd.DataFrame:
    """Return the step records of a job, in the columns of the trace contract."""
    random = np.random.default_rng(seed)
    shape = (job.steps, job.ranks)
    compute = job.compute * (1 + job.noise * np.abs(random.standard_normal(shape)))
    data = job.data * (1 + job.noise * np.abs(random.standard_normal(shape)))
    transfer = job.transfer * (
        1 + job.noise * np.abs(random.standard_normal((job.steps, job.groups)))
    )
    cpu_wait = np.zeros(shape)
    compute[: job.warm_up] *= 3
    group = np.arange(job.ranks) % job.groups
    for fault in job.faults:
        _add(fault, random, compute, data, cpu_wait, transfer, group)
    return _rows(job, compute, data, cpu_wait, transfer, group)


def _add(fault, random, compute, data, cpu_wait, transfer, group):
    steps = np.arange(len(compute))
    hit = (steps >= fault.first_step) & (steps < fault.last_step)
    hit &= random.random(len(steps)) < fault.share
    if fault.kind == "transfer":
        transfer[np.ix_(hit, np.unique(group[list(fault.ranks)]))] += fault.seconds
    else:
        values = {"compute": compute, "data": data, "cpu": cpu_wait}[fault.kind]
        values[np.ix_(hit, fault.ranks)] += fault.seconds


def _rows(job, compute, data, cpu_wait, transfer, group):
    busy = compute + data + cpu_wait
    end_of_exchange = np.empty_like(busy)
    for number in range(job.groups):
        members = group == number
        last = busy[:, members].max(axis=1, keepdims=True)
        end_of_exchange[:, members] = last + transfer[:, number : number + 1]
    duration = end_of_exchange.max(axis=1, keepdims=True) + 0.01 * job.compute
    begin = START_UNIX_SECONDS + np.concatenate([[0.0], np.cumsum(duration)[:-1]])
    step, rank = (index.ravel() for index in np.indices(busy.shape))
    return pd.DataFrame(
        {
            "step": step,
            "rank": rank,
            "node": [f"node-{number // job.ranks_per_node:05d}" for number in rank],
            "gpu": rank % job.ranks_per_node,
            "t_start_unix_seconds": begin[step],
            "step_seconds": np.broadcast_to(duration, busy.shape).ravel(),
            "data_seconds": data.ravel(),
            "compute_seconds": compute.ravel(),
            "sync_seconds": (end_of_exchange - busy).ravel(),
            "cpu_wait_seconds": cpu_wait.ravel(),
            "dp_group": group[rank],
            "tp_group": rank // job.groups,
            "pp_stage": 0,
        }
    )


def diagnosed(
    rows: pd.DataFrame,
    world_size: int | None = None,
    job_id: str = "job",
    followed: Follower | None = None,
) -> Diagnosis:
    """Judge records as those of a running job."""
    return diagnosis(JobRecords(job_id, rows, world_size, (), live=True), followed)


def findings(rows: pd.DataFrame):
    """Return what is found in the records of a running job, the verdict first."""
    said = diagnosed(rows).verdict
    return [said.cause, *said.others] if said.cause else []
