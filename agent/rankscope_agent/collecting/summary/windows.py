"""Counters and gauges over the last minutes in bounded memory; pure, time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

RESOLUTION_SECONDS = 15.0
"""Points that are kept: the usual scrape interval, so that a window of minutes has many."""


@dataclass(slots=True)
class _Growth:
    """One counter: its newest value, and how much it grew until when."""

    last: float
    seen: float
    total: float
    points: deque[tuple[float, float]]


class Increases(Generic[Key]):
    """How much counters grew within a window.

    A counter that falls has started again from zero. What happened before the first look at a
    counter does not count. One that is not there for a while is remembered for one window.

    Args:
        window: seconds that are looked back.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._counters: dict[Key, _Growth] = {}

    def add(self, key: Key, value: float, now: float) -> None:
        """Take the value that a counter has now."""
        counter = self._counters.get(key)
        if counter is None:
            self._counters[key] = _Growth(value, now, 0.0, deque([(now, 0.0)]))
            return
        grown = value - counter.last if value >= counter.last else value
        counter.last, counter.seen = value, now
        counter.total += grown
        points = counter.points
        if not grown and len(points) == 1:
            points[0] = (now, counter.total)  # most counters stand still: one point says it all
            return
        if len(points) > 1 and points[-1][0] // RESOLUTION_SECONDS == now // RESOLUTION_SECONDS:
            points.pop()
        points.append((now, counter.total))

    def increase(self, key: Key, now: float) -> float:
        """Return the growth within the window; of a longer gap between two looks, its part."""
        counter = self._counters.get(key)
        if counter is None:
            return 0.0
        points = counter.points
        while len(points) > 1 and points[1][0] <= now - self._window:
            points.popleft()
        (since, before), (until, total) = points[0], points[-1]
        grown = total - before
        return grown * min(1.0, self._window / (until - since)) if grown else 0.0

    def rate(self, key: Key, now: float) -> float:
        """Return the growth per second of the window, of which a part may not have been seen."""
        return self.increase(key, now) / self._window

    def keys(self) -> Sequence[Key]:
        """Return the counters that are remembered."""
        return tuple(self._counters)

    def forget(self, now: float) -> None:
        """Drop counters that have not been there for a window."""
        gone = [key for key, one in self._counters.items() if one.seen < now - self._window]
        for key in gone:
            del self._counters[key]


class Means(Generic[Key]):
    """Means of gauges within a window.

    Args:
        window: seconds that are looked back.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._gauges: dict[Key, deque[tuple[float, float, int]]] = {}

    def add(self, key: Key, value: float, now: float) -> None:
        """Take the value that a gauge has now; values of one grain are put together."""
        points = self._gauges.setdefault(key, deque())
        since = now // RESOLUTION_SECONDS * RESOLUTION_SECONDS
        total, count = value, 1
        if points and points[-1][0] == since:
            _, before, counted = points.pop()
            total, count = total + before, counted + 1
        points.append((since, total, count))

    def mean(self, key: Key) -> float | None:
        """Return the mean of what is not older than the window, None if there is nothing."""
        points = self._gauges.get(key)
        if not points:
            return None
        return sum(total for _, total, _ in points) / sum(count for _, _, count in points)

    def forget(self, now: float) -> None:
        """Drop what is older than the window."""
        oldest = now - self._window
        for points in self._gauges.values():
            while points and points[0][0] < oldest:
                points.popleft()
        for key in [key for key, points in self._gauges.items() if not points]:
            del self._gauges[key]
