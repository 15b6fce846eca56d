"""Counts a link's flaps, as observed and as counted by the port.

The port's own counter stops at 255 and some drivers have none; polling the state once a second
misses shorter flaps. Both are summed, and the larger sum is used.
"""

from __future__ import annotations


class LinkFlaps:
    """The flaps of one link since it was first read."""

    __slots__ = ("_active", "_counted", "_downed", "_seen")

    def __init__(self) -> None:
        self._active: bool | None = None
        self._downed: int | None = None
        self._seen = 0
        self._counted = 0

    @property
    def flaps(self) -> int:
        """How often the link went down, as far as known."""
        return max(self._seen, self._counted)

    def observe(self, active: bool | None, downed: int | None) -> int:
        """Record a link's state and its port's count; return the flaps so far.

        Args:
            active: whether the link carries data; None if unreadable.
            downed: how often it went down according to the port; None if unreadable. A count that
                decreases was reset: what it counts since then is added.
        """
        if active is not None:
            self._seen += self._active is True and not active
            self._active = active
        if downed is not None:
            if self._downed is not None:
                self._counted += downed - self._downed if downed >= self._downed else downed
            self._downed = downed
        return self.flaps
