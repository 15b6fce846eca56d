"""Which ranks a place touches, and how people call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankscope_analyzers.findings.finding import RankPlace, Where

Places = Mapping[int, RankPlace]


def ranks_touched(where: Where, places: Places) -> frozenset[int]:
    """Return the ranks of a job that a place has to do with; all of them for the whole job.

    The narrowest field decides: ranks, then GPUs, then devices on nodes, then nodes. A GPU that no
    rank is known to hold is taken for its node's, as is a device of which nobody says whom it
    serves.
    """
    if where.ranks:
        return frozenset(where.ranks)
    if where.whole_job:
        return frozenset(places)
    here = [place for place in places.values() if not where.nodes or place.node in where.nodes]
    if where.uuids or where.gpus:
        exact = [place.rank for place in here if _holds(place, where)]
        unknown = [place.rank for place in here if not (place.uuid or place.gpu)]
        return frozenset(exact or (unknown if where.nodes else ()))
    if where.devices:
        served = [place.rank for place in here if set(place.nics) & set(where.devices)]
        unknown = [place.rank for place in here if not place.nics]
        return frozenset(served or (unknown if where.nodes else ()))
    return frozenset(place.rank for place in here)


def _holds(place: RankPlace, where: Where) -> bool:
    if where.uuids and place.uuid:
        return place.uuid in where.uuids
    return bool(where.nodes) and bool(place.gpu) and place.gpu in where.gpus


def breadth(where: Where) -> int:
    """Return how wide a place is: 0 a rank or GPU, 1 a device, 2 a node, 3 the whole job."""
    if where.ranks or where.uuids or where.gpus:
        return 0
    return 1 if where.devices else 2 if where.nodes else 3


def full(ranks: Iterable[int], places: Places, extra: Where) -> Where:
    """Return all that is known of the places of ranks, with what a signal knows beyond that."""
    known = [places[rank] for rank in ranks if rank in places]
    return Where(
        nodes=_unique([*(p.node for p in known), *extra.nodes]),
        ranks=tuple(dict.fromkeys(ranks)),
        uuids=_unique([*(p.uuid for p in known), *extra.uuids]),
        gpus=_unique([*(p.gpu for p in known), *extra.gpus]),
        devices=_unique([*extra.devices]),
    )


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))
