"""Who is slow among ranks that should be equal: nodes first, then single links. Pure.

A rank is compared with the median of all others, so that one slow rank of four moves nothing. Each
rate is the best of several: other traffic makes a link slower for a moment, never faster. Ranks
that are named are far below the others' median, and separate from the slowest of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeVar

from rankscope_analyzers.fabric.measured import Link, Measured


@dataclass(frozen=True, slots=True)
class Limits:
    """When a link is slow.

    Args:
        usual: fraction of the others' median below which it is.
        slowest: fraction of the slowest of the others below which it is separate from them: if they
            differ as much among each other, because of busy processors or the fabric, a slower one
            is one more of them.
    """

    usual: float
    slowest: float


NAMED = Limits(usual=0.5, slowest=0.6)
"""Equal links differ by less than half; one that lost a lane, a rail or its RDMA has lost more."""

DOUBTFUL = Limits(usual=0.75, slowest=0.9)
"""What may be slow, or have been disturbed: then everything is measured once more."""

SLOW_DEVICE = 0.85
"""The same for GPUs of one kind, which differ by a few percent."""

SLOW_ECHO = 4.0
"""Factor above the others' round trip that is too long: echoes depend on schedulers more than rates
do."""

ECHO_FLOOR_SECONDS = 0.005
"""Shorter echoes are good on any network, and their ratios meaningless."""

COMPARABLE = 3
"""Ranks from which on one can be distinguished from the others; of two, each is the other's only
peer."""

SPLIT_LINKS = 2
"""Links from which on some that are slower than all others, or faster, are a part of their own."""

MOST_IN_TURN = 64
"""Slow ranks that are searched for one after the other; if there are more, all at once."""

Kind = Literal["sends", "receives", "link", "echo", "computes", "copies", "sums"]


_END: Mapping[Kind, int] = {"sends": 0, "receives": 1}
"""Which end of a link a kind is about."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is slower than its peers, or wrong.

    Args:
        kind: what is slow: what a rank sends or receives, one link, its echoes, its GPU; or `sums`
            that are wrong.
        ranks: the ranks; both ends of a link, the sender first.
        measured: bytes per second, seconds of echoes, or operations per second.
        usual: of its peers, the same unit.
    """

    kind: Kind
    ranks: tuple[int, ...]
    measured: float
    usual: float


def settled(found: Measured, before: Measured | None) -> bool:
    """Return True if measuring once more would not change who is named.

    That is, none is slow, or nearly so; or two consecutive looks name the same ones, and no others
    nearly.

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


def faults(found: Measured, limits: Limits = NAMED) -> tuple[Fault, ...]:
    """Return what is slow, the worst first within each kind.

    Args:
        found: what was measured.
        limits: when a link is slow.
    """
    rates = _between(found.rates)
    ends = sorted(_slow_ranks(rates, limits), key=lambda one: (_END[one.kind], _ratio(one)))
    slow_ranks = {rank for fault in ends for rank in fault.ranks}
    # Acknowledgements of what a rank sends queue with what it receives: both directions suffer.
    others = {link: rate for link, rate in rates.items() if slow_ranks.isdisjoint(link)}
    links = list(_slow_links(others, limits))
    echoes = [one for one in _echoes(found.round_trips) if one.ranks[0] not in slow_ranks]
    wrong = [
        Fault("sums", tuple(range(len(found.hosts))), one.message_bytes, one.message_bytes)
        for one in found.reductions
        if not one.correct
    ]
    return (*wrong, *ends, *links, *echoes, *_devices(found))


@dataclass(frozen=True, slots=True)
class Split:
    """Links between hosts that fall into a slow and a fast part, of which neither is the exception.

    Args:
        slow: number of links in the slow part; likewise the fast one.
        slow_rate: median rate of the slow part in bytes per second; likewise of the fast one.
    """

    slow: int
    fast: int
    slow_rate: float
    fast_rate: float


def split(found: Measured) -> Split | None:
    """Return how links between hosts fall into two parts, None if they do not.

    Ranks are compared with the median, which is that of the slow ones if half of the ranks, or the
    trunk between two racks, are slow. Links within a host take another path and are left out.
    """
    rates = sorted(rate for (a, b), rate in found.rates.items() if found.hosts[a] != found.hosts[b])
    places = range(SPLIT_LINKS, len(rates) - SPLIT_LINKS + 1)
    place = max(places, key=lambda at: rates[at] / max(rates[at - 1], 1e-9), default=0)
    if not place or rates[place - 1] > NAMED.usual * rates[place]:
        return None
    slow, fast = rates[:place], rates[place:]
    return Split(len(slow), len(fast), median(slow), median(fast))


def comparable(found: Measured) -> bool:
    """Return True if there are enough ranks with links to determine which one is slow."""
    return len({rank for link in found.rates for rank in link}) >= COMPARABLE


def usual_rate(found: Measured) -> float | None:
    """Return the median rate over all links, bytes per second; None without any."""
    return median(found.rates.values()) if found.rates else None


def _between(rates: Mapping[Link, float]) -> Mapping[Link, float]:
    ranks = {rank for link in rates for rank in link}
    return rates if len(ranks) >= COMPARABLE else {}


def _slow_ranks(rates: Mapping[Link, float], limits: Limits) -> Sequence[Fault]:
    """Return ranks whose links in one direction are mostly slow.

    The worst comes first, and is then ignored: each other rank has a link to it, which is slow
    because of it.
    """
    left = dict(rates)
    found: list[Fault] = []
    for _ in range(MOST_IN_TURN):
        worst = min(_slow_ends(left, limits), key=_ratio, default=None)
        if worst is None:
            return found
        found.append(worst)
        end = _END[worst.kind]
        left = {link: rate for link, rate in left.items() if link[end] != worst.ranks[0]}
    return [*found, *_slow_ends(left, limits)]


def _slow_ends(rates: Mapping[Link, float], limits: Limits) -> Iterator[Fault]:
    for kind, end in _END.items():
        by_rank: dict[int, list[float]] = defaultdict(list)
        for link, rate in rates.items():
            by_rank[link[end]].append(rate)
        own = {rank: median(several) for rank, several in by_rank.items()}
        if len(own) < COMPARABLE:
            continue
        ordered = sorted(own.values())
        usual = {rank: _median_without(ordered, rate) for rank, rate in own.items()}
        yield from (Fault(kind, (r,), own[r], usual[r]) for r in _apart(own, usual, limits))


def _median_without(ordered: Sequence[float], value: float) -> float:
    """Return the median of sorted values without one of them."""
    place, count = bisect_left(ordered, value), len(ordered) - 1

    def at(number: int) -> float:
        return ordered[number if number < place else number + 1]

    return at(count // 2) if count % 2 else (at(count // 2 - 1) + at(count // 2)) / 2


def _slow_links(rates: Mapping[Link, float], limits: Limits) -> Iterator[Fault]:
    usual = dict.fromkeys(rates, median(rates.values()) if rates else 0.0)
    apart = _apart(rates, usual, limits)
    yield from sorted((Fault("link", one, rates[one], usual[one]) for one in apart), key=_ratio)


Place = TypeVar("Place", int, Link)


def _apart(
    rates: Mapping[Place, float], usual: Mapping[Place, float], limits: Limits
) -> Collection[Place]:
    """Return the slow values that are separate from everything that is not slow."""
    low = {one for one, rate in rates.items() if rate < limits.usual * usual[one]}
    slowest = min((rate for one, rate in rates.items() if one not in low), default=0.0)
    return {one for one in low if rates[one] < limits.slowest * slowest}


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
