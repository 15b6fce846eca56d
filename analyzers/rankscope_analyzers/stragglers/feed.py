"""From records in any order to the steps that a detector takes, run by run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from rankscope_analyzers.frames import Booleans, Floats, Integers, RecordError
from rankscope_analyzers.stragglers.detector import Detector
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.quantities import Steps
from rankscope_analyzers.stragglers.shape import Shape

NUMBERS = (
    "t_start_unix_seconds",
    "step_seconds",
    "data_seconds",
    "compute_seconds",
    "sync_seconds",
)
REQUIRED = ("step", "rank", *NUMBERS)

LAYOUT_STEPS = 10
"""First steps of a run that show how many ranks it has; nothing is judged before they are over."""

BLOCK_ROWS = 1 << 16
"""Records that are worked on at once: large enough for numpy, small enough for the cache."""

RESTART_GAP_SECONDS = 5.0
"""No job idles that long between two steps unless it restarts."""

RESTART_GAP_STEPS = 3.0
"""Nor this many times the duration of a step, the shorter one of those before and after."""

CLOCK_TOLERANCE_SECONDS = 0.2
"""Nodes' clocks differ by up to 50 ms plus drift."""

MAXIMUM_RESTARTS = 1000
"""More runs than this in one trace are not restarts but a counter that is not one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the metadata say about a job; sizes describe its start."""

    world: int
    pipeline: int
    tensor: int
    microbatches: int
    wall: bool


@dataclass(frozen=True, slots=True)
class Columns:
    """The records as arrays of one length, in order of their start."""

    step: Integers
    rank: Integers
    node: Integers
    stage: Integers | None
    numbers: Mapping[str, Floats]
    node_names: tuple[str, ...]
    dropped: tuple[tuple[str, int], ...]


def layout(meta: Mapping[str, Any], ranks: int) -> Layout:
    """Return the layout that metadata name.

    Args:
        meta: the trace's metadata, possibly empty.
        ranks: ranks that the records show, where the metadata name no world.

    Raises:
        RecordError: sizes that are no positive numbers or do not divide the world.
    """
    pipeline = _size(meta, "pipeline_parallel", 1)
    tensor = _size(meta, "tensor_parallel", 1)
    world = _size(meta, "world_size", -(-ranks // (pipeline * tensor)) * pipeline * tensor)
    if world % (pipeline * tensor):
        raise RecordError(
            f"meta.json: world_size {world} is no multiple of pipeline_parallel {pipeline} x "
            f"tensor_parallel {tensor}"
        )
    timing = meta.get("compute_timing", "kernel")
    if timing not in {"kernel", "wall"}:
        raise RecordError(f"meta.json: compute_timing is {timing!r}, expected kernel or wall")
    return Layout(world, pipeline, tensor, _size(meta, "microbatches", 1), timing == "wall")


def _size(meta: Mapping[str, Any], name: str, default: int) -> int:
    value = meta.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RecordError(f"meta.json: {name} is {value!r}, expected a whole number of at least 1")
    return value


def columns(records: pd.DataFrame, world: int) -> Columns:
    """Return the usable records as arrays and count the others.

    Raises:
        RecordError: a required column is missing or nothing is usable.
    """
    missing = [name for name in REQUIRED if name not in records.columns]
    if missing:
        raise RecordError(f"records lack the columns {missing}, have {list(records.columns)}")
    numbers = {name: _floats(records, name) for name in REQUIRED}
    keep, dropped = _usable(numbers, world)
    order = np.flatnonzero(keep)
    starts = numbers["t_start_unix_seconds"][order]
    if (np.diff(starts) < 0).any():
        order = order[np.argsort(starts, kind="stable")]
    node, names = _nodes(records, order)
    return Columns(
        step=numbers["step"][order].astype(np.int64),
        rank=numbers["rank"][order].astype(np.int64),
        node=node,
        stage=_integers(records, "pp_stage", order) if "pp_stage" in records.columns else None,
        numbers={name: numbers[name][order] for name in NUMBERS},
        node_names=names,
        dropped=dropped,
    )


def _floats(records: pd.DataFrame, name: str) -> Floats:
    return np.asarray(pd.to_numeric(records[name], errors="coerce").to_numpy(np.float64))


def _integers(records: pd.DataFrame, name: str, order: Integers) -> Integers:
    if name not in records.columns:
        return np.full(len(order), -1, dtype=np.int64)
    values = np.nan_to_num(_floats(records, name)[order], nan=-1.0, posinf=-1.0, neginf=-1.0)
    return np.asarray(values.astype(np.int64))


def _nodes(records: pd.DataFrame, order: Integers) -> tuple[Integers, tuple[str, ...]]:
    if "node" not in records.columns:
        return np.zeros(len(order), dtype=np.int64), ("unknown",)
    codes, names = pd.factorize(records["node"], sort=True)
    return codes[order].astype(np.int64), tuple(str(name) for name in names)


def _usable(
    numbers: Mapping[str, Floats], world: int
) -> tuple[Booleans, tuple[tuple[str, int], ...]]:
    every = np.stack([np.isfinite(values) for values in numbers.values()]).all(axis=0)
    negative = np.zeros_like(every)
    for name in ("step", "rank", "step_seconds", "data_seconds", "compute_seconds", "sync_seconds"):
        negative |= numbers[name] < 0
    outside = numbers["rank"] >= world
    reasons = (
        ("incomplete", ~every),
        ("negative", every & negative),
        (f"of ranks outside the world of {world}", every & ~negative & outside),
    )
    keep = every & ~negative & ~outside
    if not keep.any():
        raise RecordError(
            f"none of {len(keep)} records can be used "
            f"({', '.join(f'{int(bad.sum())} {why}' for why, bad in reasons if bad.any())})"
        )
    return keep, tuple((why, int(bad.sum())) for why, bad in reasons if bad.any())


def runs(rows: Columns) -> tuple[slice, ...]:
    """Return the rows of each run: the step counter fell back, or a long silence passed.

    Every cut depends on earlier rows only.
    """
    start = rows.numbers["t_start_unix_seconds"]
    length = rows.numbers["step_seconds"]
    end = start + length
    found: list[slice] = []
    begin = 0
    while begin < len(start) and len(found) < MAXIMUM_RESTARTS:
        newest = np.maximum.accumulate(rows.step[begin:])
        latest = np.maximum.accumulate(end[begin:])
        pause = start[begin + 1 :] - latest[:-1]
        short = np.minimum(length[begin + 1 :], length[begin:-1])
        fell = (rows.step[begin + 1 :] < newest[:-1]) & (
            pause > -np.minimum(CLOCK_TOLERANCE_SECONDS, short / 4)
        )
        silent = pause > np.maximum(RESTART_GAP_SECONDS, RESTART_GAP_STEPS * short)
        cuts = fell | silent
        stop = begin + 1 + int(np.argmax(cuts)) if cuts.any() else len(start)
        found.append(slice(begin, stop))
        begin = stop
    return tuple(found)


def detect(rows: Columns, job: Layout, block_rows: int = BLOCK_ROWS) -> tuple[Incident, ...]:
    """Return the incidents in a job's records.

    Args:
        rows: the records.
        job: layout of the job.
        block_rows: records that are fed at once; the answer does not depend on it.
    """
    detector = Detector(rows.node_names)
    for part in runs(rows):
        counters, index = np.unique(rows.step[part], return_inverse=True)
        shape = _shape(rows, part, index, job)
        detector.restart(shape)
        for steps in _blocks(rows, part, index, shape, counters, block_rows):
            detector.feed(*steps)
    return detector.incidents


def _shape(rows: Columns, part: slice, index: Integers, job: Layout) -> Shape:
    first = index < LAYOUT_STEPS
    rank = rows.rank[part][first]
    unit = job.pipeline * job.tensor
    world = job.world if part.start == 0 else min(job.world, -(-int(rank.max() + 1) // unit) * unit)
    stage = rows.stage[part][first] if rows.stage is not None else None
    world = _agreed(world, job, rank, stage)
    nodes = np.full(world, -1, dtype=np.int64)
    nodes[rank] = rows.node[part][first]
    sizes = (job.pipeline, world // unit, job.tensor)
    return Shape(*sizes, job.microbatches, job.wall, nodes.reshape(sizes))


def _agreed(world: int, job: Layout, rank: Integers, stage: Integers | None) -> int:
    """Return the size of the world under which most ranks have the stage that they say."""
    if stage is None or job.pipeline == 1:
        return world
    unit = job.pipeline * job.tensor
    for size in range(world, job.world + 1, unit):
        if float((rank // (size // job.pipeline) == stage).mean()) > 0.5:
            return size
    raise RecordError(
        f"pp_stage contradicts meta.json: rank {int(rank[0])} says stage {int(stage[0])}, "
        f"a world of {world} ranks with {job.pipeline} stages says "
        f"{int(rank[0]) // (world // job.pipeline)}"
    )


def _blocks(
    rows: Columns, part: slice, index: Integers, shape: Shape, counters: Integers, block: int
) -> Iterator[tuple[Integers, Floats, Steps]]:
    """Yield the steps of a run as dense arrays, a bounded number of records at a time."""
    inside = rows.rank[part] < shape.world
    size = max(1, block // shape.world)
    ordered = np.argsort(index, kind="stable")
    edges = np.searchsorted(index[ordered], np.arange(0, len(counters) + size, size))
    for number, (low, high) in enumerate(pairwise(edges)):
        chosen = ordered[low:high]
        chosen = chosen[inside[chosen]]
        first = number * size
        count = min(size, len(counters) - first)
        cell = (index[chosen] - first) * shape.world + rows.rank[part][chosen]
        values = {
            name: _dense(cell, rows.numbers[name][part][chosen], count, shape) for name in NUMBERS
        }
        end = values["t_start_unix_seconds"] + values["step_seconds"]
        ends = np.nan_to_num(np.fmax.reduce(end.reshape(count, -1), axis=1))
        steps = Steps(*(values[name] for name in NUMBERS[1:]))
        yield counters[first : first + count], ends, steps


def _dense(cell: Integers, values: Floats, count: int, shape: Shape) -> Floats:
    matrix = np.full(count * shape.world, np.nan)
    matrix[cell[::-1]] = values[::-1]
    return matrix.reshape(count, *shape.sizes)
