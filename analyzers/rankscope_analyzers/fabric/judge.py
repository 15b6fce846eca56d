"""Who is slow among ranks that should be equal: nodes first, then single links. Pure.

A rank is compared with the median of all others, so that one slow rank of four moves nothing. Each
rate is the best of several: other traffic makes a link slower for a moment, never faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from rankscope_analyzers.fabric.measured import Link, Measured

SLOW_LINK = 0.5
"""Share of the others' rate below which a link is slow: equal links differ less than by half, and
a link that has lost a lane, a rail or its RDMA has lost more."""

DOUBTFUL = 0.75
"""The same below which a link may be slow, or one of the others may have been disturbed: then all
are measured once more."""

SLOW_DEVICE = 0.85
"""The same for GPUs of one kind, which differ by a few percent."""

SLOW_ECHO = 4.0
"""How many times the others' round trip is too long: echoes depend on schedulers more than rates
do."""

ECHO_FLOOR_SECONDS = 0.005
"""Echoes that are shorter are good on any network: their ratios say nothing."""

COMPARABLE = 3
"""Ranks from which on one can be told from the others; of two, each is the other's only peer."""

Kind = Literal["sends", "receives", "link", "echo", "computes", "copies", "sums"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is slower than its peers, or wrong.

    Args:
        kind: what is slow: what a rank sends or receives, one link, its echoes, its GPU; or `sums`
            that are wrong.
        ranks: whose; both ends of a link, the sender first.
        measured: bytes per second, seconds of echoes, or operations per second.
        usual: of its peers, the same unit.
    """

    kind: Kind
    ranks: tuple[int, ...]
    measured: float
    usual: float


def settled(found: Measured, before: Measured | None) -> bool:
    """Return True if measuring once more would not change who is named.

    Nobody is slow, nor nearly so; or two looks in a row name the same ones, and nobody else nearly.

    Args:
        found: the best of all looks.
        before: the same without the last look, None if that was the first.
    """
    doubtful = _named(faults(found, DOUBTFUL))
    if not doubtful or before is None:
        return not doubtful
    return doubtful == _named(faults(found)) == _named(faults(before))


def _named(several: Iterable[Fault]) -> frozenset[tuple[str, tuple[int, ...]]]:
    return frozenset((one.kind, one.ranks) for one in several)


def faults(found: Measured, slow: float = SLOW_LINK) -> tuple[Fault, ...]:
    """Return what is slow, the worst first within each kind.

    Args:
        found: what was measured.
        slow: share of the others' rate below which a link is.
    """
    rates = _between(found.rates)
    sends = list(_slow_ranks("sends", rates, 0, slow))
    receives = list(_slow_ranks("receives", rates, 1, slow))
    known = {(fault.kind, rank) for fault in (*sends, *receives) for rank in fault.ranks}
    links = [
        fault
        for fault in _slow_links(rates, slow)
        if ("sends", fault.ranks[0]) not in known and ("receives", fault.ranks[1]) not in known
    ]
    slow_ranks = {rank for _, rank in known}
    echoes = [one for one in _echoes(found.round_trips) if one.ranks[0] not in slow_ranks]
    wrong = [
        Fault("sums", tuple(range(len(found.hosts))), one.message_bytes, one.message_bytes)
        for one in found.reductions
        if not one.correct
    ]
    return (*wrong, *sends, *receives, *links, *echoes, *_devices(found))


def comparable(found: Measured) -> bool:
    """Return True if there are enough ranks with links to say which one is slow."""
    return len({rank for link in found.rates for rank in link}) >= COMPARABLE


def usual_rate(found: Measured) -> float | None:
    """Return the median rate over all links, bytes per second; None without any."""
    return median(found.rates.values()) if found.rates else None


def _between(rates: Mapping[Link, float]) -> Mapping[Link, float]:
    ranks = {rank for link in rates for rank in link}
    return rates if len(ranks) >= COMPARABLE else {}


def _slow_ranks(kind: Kind, rates: Mapping[Link, float], end: int, slow: float) -> Iterator[Fault]:
    """Yield ranks whose links in one direction are slow, as a rule; `end` is 0 for sending."""
    ranks = sorted({link[end] for link in rates})
    own = {r: median(rate for link, rate in rates.items() if link[end] == r) for r in ranks}
    found = []
    for rank in ranks:
        usual = median(rate for other, rate in own.items() if other != rank)
        if own[rank] < slow * usual:
            found.append(Fault(kind, (rank,), own[rank], usual))
    yield from sorted(found, key=_ratio)


def _slow_links(rates: Mapping[Link, float], slow: float) -> Iterator[Fault]:
    found = []
    for link, rate in rates.items():
        others = [other for key, other in rates.items() if key != link]
        usual = median(others)
        if rate < slow * usual:
            found.append(Fault("link", link, rate, usual))
    yield from sorted(found, key=_ratio)


def _echoes(round_trips: Mapping[Link, float]) -> Iterator[Fault]:
    """Yield ranks whose echoes take long with most of their peers."""
    ranks = sorted({rank for link in round_trips for rank in link})
    if len(ranks) < COMPARABLE:
        return
    own = {
        rank: median(seconds for link, seconds in round_trips.items() if rank in link)
        for rank in ranks
    }
    for rank in ranks:
        usual = median(seconds for link, seconds in round_trips.items() if rank not in link)
        if own[rank] > max(SLOW_ECHO * usual, ECHO_FLOOR_SECONDS):
            yield Fault("echo", (rank,), own[rank], usual)


def _devices(found: Measured) -> Iterator[Fault]:
    quantities: Sequence[tuple[Kind, Mapping[int, float]]] = (
        ("computes", {rank: one.flops for rank, one in found.devices.items()}),
        ("copies", {rank: min(one.to_device, one.to_host) for rank, one in found.devices.items()}),
    )
    for kind, speeds in quantities:
        if len(speeds) < COMPARABLE:
            continue
        for rank, speed in sorted(speeds.items()):
            usual = median(_others(speeds, rank))
            if speed < SLOW_DEVICE * usual:
                yield Fault(kind, (rank,), speed, usual)


def _others(speeds: Mapping[int, float], rank: int) -> Iterable[float]:
    return (speed for other, speed in speeds.items() if other != rank)


def _ratio(fault: Fault) -> float:
    return fault.measured / fault.usual
