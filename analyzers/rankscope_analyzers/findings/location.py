"""Which ranks a location affects, and how wide a location is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankscope_analyzers.findings.finding import RankLocation, Where

Locations = Mapping[int, RankLocation]


def affected_ranks(where: Where, locations: Locations) -> frozenset[int]:
    """Return the ranks of a job that a location affects; all of them for the whole job.

    The narrowest field decides: ranks, then GPUs, then devices on nodes, then nodes. A GPU without
    a known rank affects the ranks of its node whose GPU is unknown; the same holds for devices.
    """
    if where.ranks:
        return frozenset(where.ranks)
    if where.whole_job:
        return frozenset(locations)
    here = [
        location
        for location in locations.values()
        if not where.nodes or location.node in where.nodes
    ]
    if where.uuids or where.gpus:
        exact = [location.rank for location in here if _holds(location, where)]
        unknown = [location.rank for location in here if not location.gpu_known]
        return frozenset(exact or (unknown if where.nodes else ()))
    if where.devices:
        served = [location.rank for location in here if set(location.nics) & set(where.devices)]
        unknown = [location.rank for location in here if not location.nics]
        return frozenset(served or (unknown if where.nodes else ()))
    return frozenset(location.rank for location in here)


def _holds(location: RankLocation, where: Where) -> bool:
    if where.uuids and location.uuid:
        return location.whole_uuid in where.uuids
    return bool(where.nodes) and bool(location.gpu) and location.gpu in where.gpus


def breadth(where: Where) -> int:
    """Return how wide a location is: 0 a rank or GPU, 1 a device, 2 a node, 3 the whole job."""
    if where.ranks or where.uuids or where.gpus:
        return 0
    return 1 if where.devices else 2 if where.nodes else 3


def complete_location(ranks: Iterable[int], locations: Locations, extra: Where) -> Where:
    """Return the complete location of ranks, including what the finding itself names."""
    known = [locations[rank] for rank in ranks if rank in locations]
    return Where(
        nodes=_unique([*(p.node for p in known), *extra.nodes]),
        ranks=tuple(dict.fromkeys(ranks)),
        uuids=_unique([*(p.whole_uuid for p in known), *extra.uuids]),
        gpus=_unique([*(p.gpu for p in known), *extra.gpus]),
        devices=_unique([*extra.devices]),
    )


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))
