"""Published ways to find stragglers, reimplemented from their descriptions on the same records.

Each evaluates a window of 16 steps and returns a class and ranks, or nothing. They are simplified
to what step records allow: nvidia-resiliency-ext's relative score on compute time, Minder's
distances between machines without its denoising network, Greyhound's change points without its
validation runs on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope_analyzers.steps.layout import layout
from rankscope_analyzers.steps.records import Account
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.stragglers.shape import Shape

WINDOW, STRIDE, BASELINE = 16, 4, 30
REARM = 15
"""Windows without an answer after which the next one is a new incident."""

Answer = tuple[str, list[int]] | None


@dataclass(frozen=True, slots=True)
class Matrix:
    """A job as (S, R) matrices, NaN where a record is missing, and the end (S,) of each step."""

    step: np.ndarray
    data: np.ndarray
    compute: np.ndarray
    sync: np.ndarray
    ends: np.ndarray
    nodes: np.ndarray
    groups: np.ndarray


def matrix(records: Any, meta: Mapping[str, Any]) -> Matrix:
    """Put the records of a job into matrices, with consecutive runs below each other."""
    world = meta["world_size"]
    columns: dict[str, list[np.ndarray]] = {
        name: [] for name in ("step", "data", "compute", "sync")
    }
    ends, nodes = [], np.zeros(world, dtype=np.int64)
    for made in feed.assembled(FrameTable(records), layout(meta, 0), Account()):
        if isinstance(made, Shape):
            nodes[: made.world] = np.maximum(made.nodes.ravel(), 0)
            continue
        ends.append(made.ends)
        for name, values in columns.items():
            wide = np.full((len(made.ends), world), np.nan)
            dense = getattr(made.steps, name).reshape(len(made.ends), -1)
            wide[:, : dense.shape[1]] = dense
            values.append(wide)
    groups = np.zeros(world, dtype=np.int64)
    by_rank = records.drop_duplicates("rank")
    groups[by_rank["rank"].to_numpy()] = by_rank["dp_group"].to_numpy()
    joined = {name: np.concatenate(values) for name, values in columns.items()}
    return Matrix(**joined, ends=np.concatenate(ends), nodes=nodes, groups=groups)


def verdicts(job: Matrix, method: Callable[[Matrix, slice], Answer]) -> list[dict[str, Any]]:
    """Apply a method to every window; runs of answers are one incident."""
    reported: list[dict[str, Any]] = []
    quiet = REARM
    for start in range(BASELINE, len(job.ends) - WINDOW + 1, STRIDE):
        answer = method(job, slice(start, start + WINDOW))
        if answer and quiet >= REARM:
            kind, ranks = answer
            detected = float(job.ends[start + WINDOW - 1])
            reported.append({"class": kind, "detected_at_unix": detected, "ranks": ranks})
        quiet = 0 if answer else quiet + 1
    return reported


def fixed_threshold(job: Matrix, rows: slice) -> Answer:
    """Blame the rank with the longest steps if step time is 1.2 times that of the start."""
    usual = np.nanmedian(np.fmax.reduce(job.step[:BASELINE], axis=1))
    now = np.nanmean(job.step[rows], axis=0)
    return ("gpu_compute", [int(np.nanargmax(now))]) if np.nanmax(now) > 1.2 * usual else None


def z_score(job: Matrix, rows: slice) -> Answer:
    """Blame ranks whose mean compute is three standard deviations above that of all ranks."""
    now = np.nanmean(job.compute[rows], axis=0)
    score = (now - np.nanmean(now)) / np.nanstd(now)
    return ("gpu_compute", [int(np.nanargmax(score))]) if np.nanmax(score) > 3 else None


def median_deviation(job: Matrix, rows: slice) -> Answer:
    """Blame ranks six median absolute deviations and 5 % of the step above the median per phase."""
    for kind, values in (("data_loader", job.data), ("gpu_compute", job.compute)):
        now = np.nanmean(values[rows], axis=0)
        above = now - np.nanmedian(now)
        limit = max(6 * 1.4826 * np.nanmedian(np.abs(above)), 0.05 * np.nanmean(job.step[rows]))
        if np.nanmax(above) > limit:
            return kind, [int(np.nanargmax(above))]
    return None


def relative_score(job: Matrix, rows: slice) -> Answer:
    """Apply nvidia-resiliency-ext's score: shortest median compute over a rank's own below 0.75."""
    now = np.nanmedian(job.compute[rows], axis=0)
    score = np.nanmin(now) / now
    return ("gpu_compute", [int(np.nanargmin(score))]) if np.nanmin(score) < 0.75 else None


def machine_distance(job: Matrix, rows: slice) -> Answer:
    """Apply Minder: the machine whose distances to all others stand out, metric by metric.

    It must stand out in each of the last four windows (continuity).
    """
    if rows.start < BASELINE + 3 * WINDOW:
        return None
    for kind, values in (
        ("gpu_compute", job.compute),
        ("data_loader", job.data),
        ("network_link", job.sync),
    ):
        worst = {
            _far_machine(values[rows.start - k * WINDOW : rows.stop - k * WINDOW], job.nodes)
            for k in range(4)
        }
        if len(worst) == 1 and (machine := worst.pop()) >= 0:
            return kind, np.flatnonzero(job.nodes == machine).tolist()
    return None


def _far_machine(values: np.ndarray, nodes: np.ndarray) -> int:
    names = np.unique(nodes)
    if len(names) < 3:
        return -1
    series = np.stack([np.nanmean(values[:, nodes == name], axis=1) for name in names])
    series = np.nan_to_num(series / np.nanmedian(series))
    distance = np.linalg.norm(series[:, None] - series[None], axis=2).sum(axis=1)
    score = (distance - distance.mean()) / max(float(distance.std()), 1e-12)
    return (
        int(names[np.argmax(score)])
        if score.max() > min(2.5, 0.9 * np.sqrt(len(names) - 1))
        else -1
    )


def change_point(job: Matrix, rows: slice) -> Answer:
    """Apply Greyhound: the mean step time shifts by 10 %; then the slow rank, or the slow group."""
    steps = np.fmax.reduce(job.step, axis=1)
    before = steps[max(0, rows.start - 20) : rows.start]
    usual, noise = (
        np.median(before),
        np.std(before[np.abs(before - before.mean()) < 3 * before.std() + 1e-9]),
    )
    shift = float(np.median(steps[rows]) - usual)
    if shift < 0.1 * usual or shift < 3 * noise:
        return None
    compute = np.nanmean(job.compute[rows], axis=0)
    if np.nanmax(compute) > 1.1 * np.nanmedian(compute):
        return "gpu_compute", [int(np.nanargmax(compute))]
    groups = np.unique(job.groups)
    sync = np.array(
        [np.nanmin(np.nanmean(job.sync[rows][:, job.groups == g], axis=0)) for g in groups]
    )
    if len(groups) > 1 and sync.max() > 1.2 * np.median(sync):
        return "network_link", np.flatnonzero(job.groups == groups[np.argmax(sync)]).tolist()
    return "global_slowdown", []


METHODS: Mapping[str, Callable[[Matrix, slice], Answer]] = {
    "fixed threshold 1.2x": fixed_threshold,
    "z-score 3": z_score,
    "MAD 6 and 5 % effect": median_deviation,
    "nvidia-resiliency-ext score 0.75": relative_score,
    "Minder-like": machine_distance,
    "Greyhound-like": change_point,
}
