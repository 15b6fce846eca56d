"""A histogram in Prometheus' form that can be saved."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from rankscope_agent.contract.model import HistogramValue


class Histogram:
    """Counts values by size.

    Args:
        bounds: upper ones, ascending, without infinity.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def value(self) -> HistogramValue:
        """Return cumulative counts."""
        *rising, count = accumulate(self._counts)
        return HistogramValue(tuple(zip(self._bounds, rising, strict=True)), count, self._sum)

    def kept(self) -> list[Any]:
        """Return the state to save."""
        return [list(self._bounds), self._counts, self._sum]

    @classmethod
    def of(cls, kept: Any, bounds: Sequence[float]) -> Histogram:
        """Return a saved histogram; an empty one if it was saved with other bounds.

        Raises:
            TypeError, ValueError: it is not a histogram.
        """
        had, counts, total = kept
        made = cls(bounds)
        if tuple(had) != made._bounds:
            return made
        if len(counts) != len(made._counts) or not all(_is_count(one) for one in counts):
            raise ValueError(f"{counts!r} are not counts")
        if not 0 <= float(total) < math.inf:
            raise ValueError(f"{total!r} is not a sum")
        made._counts, made._sum = list(counts), float(total)
        return made


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
