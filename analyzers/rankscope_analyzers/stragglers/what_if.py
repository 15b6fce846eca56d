"""How much faster a job would be if no rank was slower than the others: the two ideals.

T_ideal = 1F1B closed form with ideal compute and input + what the run needs beyond its own closed
form (median of T - model); S = T / T_ideal, lost = 1 - 1 / S. Source: the what-if analysis of Lin
et al., OSDI 2025, without replaying every operator. "All equal" gives every rank the median of all;
"stage weights kept" the median of its pipeline stage, so that a heavy stage stays heavy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.medians import median
from rankscope_analyzers.numeric.row_statistics import row_maximum
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.stragglers.incident_findings import SECONDS_PER_HOUR
from rankscope_analyzers.stragglers.pipeline import gradients_ready, stage_weights

FEWEST_STEPS = 12
"""Steps whose median is the time beyond the closed form, as many as a verdict needs."""

LONGEST_SECONDS = 1e12
"""Limit in seconds: thirty thousand years of steps are a timing error."""

FEWEST_PRESENT = 0.5
"""Share of the ranks that must be known in a step for its medians to stand for all."""


@dataclass(frozen=True, slots=True)
class Ideal:
    """One ideal, over all steps that were judged.

    Args:
        slowdown: S, actual over ideal time.
        lost_fraction: 1 - 1 / S.
        gpu_hours: lost by the whole job in these steps.
    """

    slowdown: float
    lost_fraction: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Both ideals; they differ by what uneven pipeline stages cost."""

    all_equal: Ideal
    stage_weights_kept: Ideal


def ideals(frame: StepFrame, job: Layout) -> WhatIf | None:
    """Return both ideals of a job, None if its compute is not measured or too few steps are.

    Args:
        frame: the job.
        job: its layout at the start; smaller worlds after a restart are supported.
    """
    judged = frame.usable_only()
    parts = [
        _times(judged, judged.segments == run, job) for run in np.unique(judged.segments).tolist()
    ]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    actual, equal, kept = (np.concatenate(values) for values in zip(*known, strict=True))
    all_equal = _ideal(actual, equal, frame.world_size)
    stage_weights_kept = _ideal(actual, kept, frame.world_size)
    if all_equal is None or stage_weights_kept is None:
        return None
    return WhatIf(all_equal, stage_weights_kept)


def _ideal(actual: Floats, ideal: Floats, world: int) -> Ideal | None:
    """Compare times; None if nothing takes any time, or the result overflows."""
    total, least = float(actual.sum()), float(np.minimum(ideal, actual).sum())
    if not (0.0 < least <= total < LONGEST_SECONDS):
        return None
    lost = (total - least) / total
    hours = (total - least) * world / SECONDS_PER_HOUR
    return Ideal(total / least, lost, hours)


def _times(
    frame: StepFrame, rows: np.ndarray[tuple[int], np.dtype[np.bool_]], job: Layout
) -> tuple[Floats, Floats, Floats] | None:
    """Return (S,) actual and ideal step times of one run."""
    run = frame.rows(rows)
    present = np.isfinite(run.step).any(axis=0)
    if not present.any():
        return None
    world = min(job.world, -(-int(run.ranks[present].max() + 1) // job.unit) * job.unit)
    # A rank that waits for a CPU computes that much later.
    held_up = run.compute + np.nan_to_num(run.cpu_wait)
    compute, data = (_wide(run, values, world, job) for values in (held_up, run.data))
    measured = np.isfinite(compute)
    # A stage without a known rank has no weight to keep: it may need all of the step.
    known = measured.mean(axis=(1, 2, 3)) >= FEWEST_PRESENT
    known &= np.all(measured.any(axis=(2, 3)), axis=1)
    if int(known.sum()) < FEWEST_STEPS:
        return None
    duration = row_maximum(run.step)[known]
    compute, data = compute[known], np.nan_to_num(data[known])
    models = _wall_models if job.wall else _kernel_models
    actual, equal, kept = models(compute, data, job.microbatches)
    beyond = float(np.median(duration - actual))
    floor = max(beyond, 0.0)
    return duration, equal + floor, kept + floor


def _wide(frame: StepFrame, values: Floats, world: int, job: Layout) -> Floats:
    """Return (S, P, D, T), NaN where a rank is missing."""
    inside = frame.ranks < world
    matrix = np.full((len(values), world), np.nan)
    matrix[:, frame.ranks[inside]] = values[:, inside]
    return matrix.reshape(len(values), job.pipeline, -1, job.tensor)


def _kernel_models(
    compute: Floats, data: Floats, microbatches: int
) -> tuple[Floats, Floats, Floats]:
    """Return (S,) closed forms of the real, the equal and the equal-within-stages job."""
    arrival = np.fmax.reduce(data, axis=3)
    busy = np.nan_to_num(np.fmax.reduce(compute, axis=3))
    by_stage = median(compute, (2, 3))[..., 0]
    everywhere = np.broadcast_to(median(compute, (1, 2, 3))[..., 0], by_stage.shape)
    usual = np.broadcast_to(median(data, (1, 2, 3))[..., 0], by_stage.shape)
    return (
        _finish_time(arrival, busy, microbatches),
        _finish_time(usual, everywhere, microbatches),
        _finish_time(usual, by_stage, microbatches),
    )


def _finish_time(arrival: Floats, busy: Floats, microbatches: int) -> Floats:
    return np.asarray(gradients_ready(arrival, busy, microbatches).max(axis=(1, 2)))


def _wall_models(compute: Floats, data: Floats, microbatches: int) -> tuple[Floats, Floats, Floats]:
    """Return the same for compute that includes waits: replicas are known, ranks are not."""
    ready = np.fmax.reduce(data + compute, axis=3)
    actual = np.nan_to_num(np.fmax.reduce(ready.reshape(len(ready), -1), axis=1))
    by_stage = median(ready, 2)[:, :, 0]
    kept = np.fmax.reduce(by_stage, axis=1)
    if by_stage.shape[1] == 1:
        return actual, kept, kept
    ready = np.nan_to_num(median(by_stage, 0)[0])[:, None]
    weights = stage_weights(np.zeros_like(ready), ready, microbatches)[:, 0]
    each = np.full((len(weights), 1), np.median(weights))
    least = float(gradients_ready(np.zeros_like(each), each, microbatches).max())
    real = weights[:, None]
    now = float(gradients_ready(np.zeros_like(real), real, microbatches).max())
    return actual, kept * min(least / now if now else 1.0, 1.0), kept
