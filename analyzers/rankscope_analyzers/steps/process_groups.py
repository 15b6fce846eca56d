"""A rank's position in tensor, data and pipeline parallelism, from its process groups.

The probe, which must be a single file, decides by the same rules; see its `_layout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

TENSOR_GROUPS = ("tp", "tensor", "tensor_parallel", "tensor_model_parallel_group")
PIPELINE_GROUPS = ("pp", "pipeline", "pipeline_parallel", "pipeline_model_parallel_group")
"""Names that frameworks give the groups of ranks that share a layer, and those that share a
pipeline: names of DeviceMesh dimensions (described as "mesh_<name>"), and Megatron-LM's
descriptions."""


class Layout(NamedTuple):
    """A rank's groups, numbered as in the trace contract."""

    dp_group: int
    tp_group: int
    pp_stage: int


@dataclass(frozen=True, slots=True)
class _Axis:
    """A rank's coordinate on one axis of the grid of ranks."""

    index: int
    size: int
    stride: int


def layout(rank: int, world_size: int, groups: Any) -> Layout | None:
    """Return a rank's position; None if no group gives it or the ranks form no regular grid.

    Ranks that differ in neither tensor index t nor stage p reduce one gradient shard, however else
    the job is split: dp_group = p * TP + t. With d counting those ranks, tp_group = p * DP + d.

    Args:
        rank: the global rank.
        world_size: ranks of the job.
        groups: `distributedInfo.pg_config` of a trace, which may hold anything.
    """
    named = _named(groups)
    tensor = next((named[name] for name in TENSOR_GROUPS if name in named), None)
    pipeline = next((named[name] for name in PIPELINE_GROUPS if name in named), None)
    if tensor is None and pipeline is None:
        return None
    across, along = _axis(rank, tensor or [rank]), _axis(rank, pipeline or [rank])
    if across is None or along is None:
        return None
    firsts = [
        other
        for other in range(world_size)
        if other // across.stride % across.size == other // along.stride % along.size == 0
    ]
    first = rank - across.index * across.stride - along.index * along.stride
    if len(firsts) * across.size * along.size != world_size or first not in firsts:
        return None
    return Layout(
        dp_group=along.index * across.size + across.index,
        tp_group=along.index * len(firsts) + firsts.index(first),
        pp_stage=along.index,
    )


def _named(groups: Any) -> dict[str, list[int]]:
    """Return the ranks of each group by its description; invalid entries are left out."""
    named: dict[str, list[int]] = {}
    for group in groups if isinstance(groups, Sequence) else ():
        if isinstance(group, Mapping) and _are_ranks(ranks := group.get("ranks")):
            name = str(group.get("pg_desc", "")).lower().removeprefix("mesh_")
            named.setdefault(name, sorted(ranks))
    return named


def _are_ranks(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and bool(value) and all(type(rank) is int for rank in value)


def _axis(rank: int, ranks: Sequence[int]) -> _Axis | None:
    """Return the coordinate of a rank in an evenly spaced group, None if it is not such a group."""
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if stride < 1:
        return None
    index = rank // stride % len(ranks)
    even = list(range(rank - index * stride, rank + (len(ranks) - index) * stride, stride))
    return _Axis(index, len(ranks), stride) if even == list(ranks) else None
