"""Build the shape of a run and its dense arrays from the run's records."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.numeric.medians import median, typical
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import CPU_WAIT, OTHER, TIMING, TIMINGS, end_on_devices
from rankscope_analyzers.steps.rows import LOADER, Rows, dense
from rankscope_analyzers.stragglers.quantities import Steps
from rankscope_analyzers.stragglers.shape import Shape

LOCKED_SHARE = 0.002
"""Fraction of compute by which tensor ranks that wait for each other inside it may differ. GPUs of
one model differ by at least half a per cent, so more is what each of them needs by itself."""

LOCKED_NOISE = 0.003
"""Fraction of compute by which distances between stages of one replica may vary from step to step
if compute ends for all of them with the replica. Kernels alone vary by more."""

LOCKED_SPREAD = 0.3
"""As a fraction of how much replicas differ: sequences of unequal length move all stages of one."""

USUAL_MICROBATCHES = 4
"""Micro-batches per stage if they are not counted: with fewer the pipeline idles."""

LARGEST_MICROBATCHES = 1 << 20
"""Larger counts are invalid."""


def shape_of_run(
    rows: Rows, sizes: tuple[int, int, int], ranks: Integers | None, job: Layout
) -> Shape:
    """Return the shape of a run.

    Args:
        rows: its first records.
        sizes: (P, D, T).
        ranks: (P, D, T) the rank at each position, None if positions are numbered as ranks are.
        job: layout from the job's metadata.
    """
    unplaced = Shape(*sizes, 1, False, np.full(sizes, -1, dtype=np.int64), ranks)
    position = unplaced.positions_of(rows.rank)
    inside = position >= 0
    nodes = np.full(unplaced.world, -1, dtype=np.int64)
    nodes[position[inside][::-1]] = rows.node[inside][::-1]
    timing = _timing(rows)
    wall = job.wall if not timing else timing == TIMINGS["wall"]
    if wall and job.by_groups and sizes[0] * sizes[2] > 1:
        wall = _holds_waits(rows.at(inside), position[inside], sizes)
    counted = _microbatches(rows, job)
    count = counted or USUAL_MICROBATCHES * sizes[0]
    return Shape(
        *sizes, count, wall, nodes.reshape(sizes), ranks, timing, counted > 0,
        on_devices=OTHER in rows.floats and end_on_devices(rows.floats[OTHER]),
    )  # fmt: skip


def _timing(rows: Rows) -> int:
    """Return the timing of most records that state one, 0 if none does."""
    codes = rows.whole.get(TIMING)
    known = codes[codes > 0] if codes is not None else np.empty(0, dtype=np.int64)
    return int(np.argmax(np.bincount(known))) if len(known) else 0


def _microbatches(rows: Rows, job: Layout) -> int:
    """Return the micro-batches of a step, 0 if unknown."""
    counts = rows.floats.get("microbatches")
    known = counts[(counts >= 1) & (counts < LARGEST_MICROBATCHES)] if counts is not None else ()
    return int(np.median(known)) if len(known) else job.microbatches


def _holds_waits(rows: Rows, position: Integers, sizes: tuple[int, int, int]) -> bool:
    """Return True if wall time of compute contains waits for tensor and pipeline peers.

    Timers around forward and backward contain them; the probe subtracts blocked calls. Ranks that
    wait for each other are ready at the same time, whatever each of them needed.
    """
    if "compute_seconds" not in rows.floats:
        return False
    counters, index = np.unique(rows.step, return_inverse=True)
    count = len(counters) * int(np.prod(sizes))
    cell = index * int(np.prod(sizes)) + position
    data = np.nan_to_num(rows.floats.get("data_seconds", np.zeros(len(rows))))
    busy = dense(cell, rows.floats["compute_seconds"] + data, count).reshape(-1, *sizes)
    pace = median(busy, (1, 2, 3))  # first steps are several times as long as later ones
    busy = busy / np.where(pace > 0, pace, np.nan)
    if sizes[2] > 1:
        apart = np.fmax.reduce(busy, axis=3) - np.fmin.reduce(busy, axis=3)
        return bool(np.isfinite(apart).any()) and typical(apart) < LOCKED_SHARE
    distance = np.diff(busy, axis=1)
    steady = typical(np.abs(distance - median(distance, 0)))
    between = typical(np.abs(busy - median(busy, 2))) if sizes[1] > 1 else np.inf
    return bool(np.isfinite(distance).any()) and steady < min(LOCKED_NOISE, LOCKED_SPREAD * between)


def steps_of(rows: Rows, cell: Integers, count: int, shape: Shape) -> Steps:
    """Return records as dense arrays (n, P, D, T), NaN where something is unknown.

    Args:
        rows: the records, one of each rank in each step.
        cell: index of each in the flattened arrays.
        count: n, the number of steps.
        shape: of the run; compute of ranks with another timing is left out.
    """
    sizes, count = (count, *shape.sizes), count * shape.world
    odd = timed_otherwise(rows, shape.timing)

    def wide(name: str, *, timed: bool = False) -> Floats:
        values = rows.floats.get(name)
        if values is None:
            return np.full(sizes, np.nan)
        if timed and odd is not None:
            values = np.where(odd, np.nan, values)
        return dense(cell, values, count).reshape(sizes)

    def extra(name: str) -> Floats | None:
        return wide(name) if name in rows.floats else None

    work = next((name for name in ("tokens", "samples") if _counted(rows, name)), "")
    return Steps(
        wide("step_seconds"), wide("data_seconds"), wide("compute_seconds", timed=True),
        wide("sync_seconds", timed=True), extra(OTHER), extra(CPU_WAIT),
        extra(work), extra("steps"), _exit_lateness(rows, cell, sizes, shape), extra(LOADER),
    )  # fmt: skip


def _exit_lateness(
    rows: Rows, cell: Integers, sizes: tuple[int, ...], shape: Shape
) -> Floats | None:
    """Return how much later than the others of its node each rank left the exchange, seconds.

    Ranks at the ends of a slow hop leave last. If a barrier follows, the rest of their step is
    shorter by as much; otherwise only the clock shows it, and only within a node. Where devices
    end the steps, their hosts' ends show nothing.
    """
    rest = rows.floats.get(OTHER, np.zeros(len(rows)))
    if not shape.timing or "steps" in rows.floats or shape.on_devices:
        return None
    rest = np.nan_to_num(rest)
    ended = dense(cell, rows.end - rest, int(np.prod(sizes))).reshape(sizes[0], -1)
    late = np.full_like(ended, np.nan)
    for members in _nodes_by_size(shape.nodes.ravel()):
        times = ended[:, members]
        late[:, members] = times - median(times, 2)
    return late.reshape(sizes)


def _nodes_by_size(nodes: Integers) -> Iterator[Integers]:
    """Yield the members of all nodes that have equally many, at least two: a row for each node.

    Args:
        nodes: of each rank, negative if unknown.
    """
    order = np.argsort(nodes, kind="stable")
    numbers, first, counts = np.unique(nodes[order], return_index=True, return_counts=True)
    for size in np.unique(counts[(numbers >= 0) & (counts > 1)]):
        begin = first[(numbers >= 0) & (counts == size)]
        yield order[begin[:, np.newaxis] + np.arange(size)]


def timed_otherwise(rows: Rows, timing: int) -> Booleans | None:
    """Return True for records with another timing than their run, None if there are none."""
    codes = rows.whole.get(TIMING)
    if codes is None or not timing:
        return None
    odd = np.asarray((codes > 0) & (codes != timing))
    return odd if odd.any() else None


def _counted(rows: Rows, name: str) -> bool:
    return name in rows.floats and bool((rows.floats[name] > 0).any())
