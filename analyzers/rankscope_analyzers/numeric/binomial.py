"""How likely it is that independent events hit one of several alternatives so often by chance."""

from __future__ import annotations

from math import comb


def some_hit_so_often(count: int, hits: int, probability: float) -> float:
    """Return the probability that some alternative has this many hits or more, at most.

    Args:
        count: number of events.
        hits: of them, on the one that had the most.
        probability: that an event hits a certain alternative; all are equally likely.
    """
    tail = sum(
        comb(count, n) * probability**n * (1 - probability) ** (count - n)
        for n in range(hits, count + 1)
    )
    return tail / probability
