"""What a trace's metadata state about a job, and their contradictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from rankscope_analyzers.numeric.arrays import Integers
from rankscope_analyzers.steps.records import RecordError

RANK_ORDERS = tuple(",".join(order) for order in permutations(("tp", "dp", "pp")))
RANK_ORDER = RANK_ORDERS[0]
"""Tensor ranks are adjacent, then replicas, then stages: in this order a rank's number gives its
position. In any other order its groups do."""

SIZES = ("tensor_parallel", "pipeline_parallel", "data_parallel")
"""Metadata that describe how ranks are arranged."""

MAXIMUM_WORLD = 1 << 20
"""Ranks: 64 times the largest job that was tested; a larger number is a mistake."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What is known about a job before its records are; sizes are those at its start.

    Args:
        microbatches: of a step, 0 if unknown.
        wall: compute is wall time, unless the records state their timing.
        by_groups: ranks are arranged by their own groups, not by their numbers.
    """

    world: int
    pipeline: int
    tensor: int
    microbatches: int
    wall: bool
    by_groups: bool = False

    @property
    def unit(self) -> int:
        """Return the ranks of one replica, the unit by which worlds grow and shrink."""
        return self.pipeline * self.tensor


def layout(meta: Mapping[str, Any], ranks: int) -> Layout:
    """Return the layout that metadata describe.

    Args:
        meta: the trace's metadata, possibly empty.
        ranks: number of ranks that the records show, used if the metadata give no world size.

    Raises:
        RecordError: sizes that are not positive numbers, or that contradict each other.
    """
    pipeline = _size(meta, "pipeline_parallel", 1)
    tensor = _size(meta, "tensor_parallel", 1)
    replicas = _size(meta, "data_parallel", max(-(-ranks // (pipeline * tensor)), 1))
    world = _size(meta, "world_size", replicas * pipeline * tensor)
    if world > MAXIMUM_WORLD:
        raise RecordError(f"meta.json: world_size is {world}, expected at most {MAXIMUM_WORLD}")
    if world % (pipeline * tensor):
        raise RecordError(
            f"meta.json: world_size {world} is not a multiple of pipeline_parallel {pipeline} x "
            f"tensor_parallel {tensor}"
        )
    if "data_parallel" in meta and replicas * pipeline * tensor != world:
        raise RecordError(
            f"meta.json: world_size {world} is not data_parallel {replicas} x pipeline_parallel "
            f"{pipeline} x tensor_parallel {tensor}"
        )
    order = _known(meta, "rank_order", RANK_ORDERS)
    timing = _known(meta, "compute_timing", ("wall", "kernel"))
    stated = any(name in meta for name in SIZES)
    return Layout(
        world, pipeline, tensor, _size(meta, "microbatches", 1), timing == "wall",
        by_groups=not stated or order != RANK_ORDER,
    )  # fmt: skip


def _size(meta: Mapping[str, Any], name: str, default: int) -> int:
    value = meta.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RecordError(f"meta.json: {name} is {value!r}, expected a whole number of at least 1")
    return value


def _known(meta: Mapping[str, Any], name: str, values: tuple[str, ...]) -> str:
    value = meta.get(name, values[0])
    if value not in values:
        raise RecordError(f"meta.json: {name} is {value!r}, expected {' or '.join(values)}")
    return str(value)


@dataclass(frozen=True, slots=True)
class ReportedGroups:
    """The groups that the first records of a run give; -1 where they give none.

    Args:
        rank: (n,) rank of each record.
        row: (n,) number of each record in its source.
        columns: those of pp_stage, tp_group and dp_group that are recorded, each (n,).
    """

    rank: Integers
    row: Integers
    columns: Mapping[str, Integers]


def world_of(reported: ReportedGroups, job: Layout, first: bool) -> int:
    """Return how many ranks a run has: the smallest world that the records' groups agree with.

    Args:
        reported: groups of the run's first records.
        job: layout at the start of the job.
        first: whether it is the job's first run, which has the full size.

    Raises:
        RecordError: no world of the layout agrees with most records.
    """
    largest = int(reported.rank.max()) + 1
    smallest = job.world if first else min(job.world, -(-largest // job.unit) * job.unit)
    for world in range(smallest, job.world + 1, job.unit):
        if all(_agrees(reported, name, world, job) for name in reported.columns):
            return world
    name = next(name for name in reported.columns if not _agrees(reported, name, smallest, job))
    raise RecordError(_contradiction(reported, name, smallest, job))


def _agrees(reported: ReportedGroups, name: str, world: int, job: Layout) -> bool:
    column = reported.columns[name]
    known = column >= 0
    right = _expected_group(reported.rank, name, world, job) == column
    return not known.any() or float(right[known].mean()) > 0.5


def _expected_group(rank: Integers, name: str, world: int, job: Layout) -> Integers:
    """Return the stage or group of ranks: rank = (pp_stage * DP + d) * TP + t."""
    stage = rank // (world // job.pipeline)
    if name == "pp_stage":
        return stage
    return rank // job.tensor if name == "tp_group" else stage * job.tensor + rank % job.tensor


def _contradiction(reported: ReportedGroups, name: str, world: int, job: Layout) -> str:
    expected = _expected_group(reported.rank, name, world, job)
    wrong = (reported.columns[name] != expected) & (reported.columns[name] >= 0)
    first = int(np.flatnonzero(wrong)[np.argmin(reported.row[wrong])])
    rank = reported.rank[first]
    return (
        f"row {reported.row[first]}: {name} contradicts meta.json: rank {rank} says "
        f"{reported.columns[name][first]}, a world of {world} ranks with {job.pipeline} stages and "
        f"{job.tensor} tensor ranks says {expected[first]}"
    )
