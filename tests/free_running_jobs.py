"""Records of jobs whose ranks begin the next step at once, as with DDP: no barrier ends a step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnosis

BEGIN = 1_760_000_000.0
WARM_UP = 5


def computing(steps, ranks, seconds=1.0, *, noise=0.01, seed=0):
    """Return (steps, ranks) compute of healthy ranks of one model; the first steps take longer."""
    random = np.random.default_rng(seed)
    silicon = 1 + np.clip(0.01 * random.standard_normal(ranks), -0.03, 0.03)
    compute = seconds * silicon * (1 + noise * np.abs(random.standard_normal((steps, ranks))))
    compute[:WARM_UP] *= 2
    return compute


def records(
    compute,
    *,
    data=0.01,
    rest=0.01,
    exchange=0.1,
    cpu_wait=0.0,
    samples=None,
    per_node=8,
    timing="wall",
):
    """Return the records of a job.

    Args:
        compute: (steps, ranks) seconds.
        data: of any shape that fits, as are rest, cpu_wait and samples; seconds.
        exchange: seconds of each step, of one number or of any shape that fits (steps, 1).
    """
    shape = compute.shape
    data, rest, exchange, cpu_wait = (
        np.broadcast_to(np.asarray(values, float), shape)
        for values in (data, rest, exchange, cpu_wait)
    )
    begin, starts, ends = np.full(shape[1], BEGIN), [], []
    for step in range(shape[0]):
        ready = begin + data[step] + cpu_wait[step] + compute[step]
        left = ready.max() + exchange[step]
        starts.append(begin)
        ends.append((ready, left))
        begin = left + rest[step]
    ready, left = (np.array(times) for times in zip(*ends, strict=True))
    ranks = np.tile(np.arange(shape[1]), shape[0])
    counted = {} if samples is None else {"samples": np.broadcast_to(samples, shape).ravel()}
    return pd.DataFrame(
        {
            "step": np.repeat(np.arange(shape[0]), shape[1]),
            "rank": ranks,
            "node": [f"node-{rank // per_node}" for rank in ranks],
            "gpu": ranks % per_node,
            "t_start_unix_seconds": np.round(np.array(starts).ravel(), 6),
            "step_seconds": (left + rest - np.array(starts)).ravel(),
            "data_seconds": data.ravel(),
            "compute_seconds": compute.ravel(),
            "sync_seconds": (left - ready).ravel(),
            "other_seconds": rest.ravel(),
            "cpu_wait_seconds": cpu_wait.ravel(),
            "dp_group": 0,
            "tp_group": ranks,
            "pp_stage": 0,
            "timing_source": timing,
            **counted,
        }
    )


def verdict(rows):
    """Return the verdict on a running job."""
    return diagnosis(JobRecords("job", rows, None, (), live=True)).verdict


def findings(rows):
    """Return the cause and all other findings, the cause first."""
    judged = verdict(rows)
    return () if judged.cause is None else (judged.cause, *judged.others)
