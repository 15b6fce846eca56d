"""Counters and gauges over the last minutes in bounded memory; pure, time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

RESOLUTION_SECONDS = 15.0
"""Distance of the points that are kept: the usual scrape interval, so that a window of minutes has
many."""


@dataclass(slots=True)
class _Growth:
    """One counter: its newest value, and its increases up to given times."""

    last: float
    seen: float
    total: float
    points: deque[tuple[float, float]]


class Increases(Generic[Key]):
    """Increases of counters within a window.

    A counter that decreases has restarted from zero. What happened before a counter was first read
    does not count. One that is missing is remembered for one window.

    Args:
        window: its length in seconds.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._counters: dict[Key, _Growth] = {}

    def add(self, key: Key, value: float, now: float) -> None:
        """Record the current value of a counter."""
        counter = self._counters.get(key)
        if counter is None:
            self._counters[key] = _Growth(value, now, 0.0, deque([(now, 0.0)]))
            return
        grown = value - counter.last if value >= counter.last else value
        counter.last, counter.seen = value, now
        counter.total += grown
        points = counter.points
        if not grown and len(points) == 1:
            points[0] = (now, counter.total)  # most counters do not change: one point suffices
            return
        if len(points) > 1 and points[-1][0] // RESOLUTION_SECONDS == now // RESOLUTION_SECONDS:
            points.pop()
        points.append((now, counter.total))

    def increase(self, key: Key, now: float) -> float:
        """Return the increase within the window; of a longer gap between readings, its share."""
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
        """Return the increase per second of the window, part of which may be unobserved."""
        return self.increase(key, now) / self._window

    def keys(self) -> Sequence[Key]:
        """Return the remembered counters."""
        return tuple(self._counters)

    def forget(self, now: float) -> None:
        """Drop counters that have been missing for a window."""
        gone = [key for key, one in self._counters.items() if one.seen < now - self._window]
        for key in gone:
            del self._counters[key]


class Means(Generic[Key]):
    """Means of gauges within a window.

    Args:
        window: its length in seconds.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._gauges: dict[Key, deque[tuple[float, float, int]]] = {}

    def add(self, key: Key, value: float, now: float) -> None:
        """Record the current value of a gauge; values of one interval are combined."""
        points = self._gauges.setdefault(key, deque())
        since = now // RESOLUTION_SECONDS * RESOLUTION_SECONDS
        total, count = value, 1
        if points and points[-1][0] == since:
            _, before, counted = points.pop()
            total, count = total + before, counted + 1
        points.append((since, total, count))

    def mean(self, key: Key) -> float | None:
        """Return the mean of the values in the window; None if there are none."""
        points = self._gauges.get(key)
        if not points:
            return None
        return sum(total for _, total, _ in points) / sum(count for _, _, count in points)

    def forget(self, now: float) -> None:
        """Drop values older than the window."""
        oldest = now - self._window
        for points in self._gauges.values():
            while points and points[0][0] < oldest:
                points.popleft()
        for key in [key for key, points in self._gauges.items() if not points]:
            del self._gauges[key]
