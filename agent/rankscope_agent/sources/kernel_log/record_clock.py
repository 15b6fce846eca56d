"""The time of the kernel's records, whose clock runs apart from the node's.

Records are stamped by sched_clock, which follows the processor's counter alone, while time daemons
discipline the clock that uptime is read from: some seconds a day, minutes on a node that has been
up for months. A record that is read as it is written shows how far they are apart.
"""

from __future__ import annotations


class RecordClock:
    """Converts records' seconds to uptime; corrected by each record that is new."""

    __slots__ = ("_behind", "_caught_up", "_uptime")

    def __init__(self) -> None:
        self._behind = 0.0
        self._caught_up: float | None = None
        self._uptime = 0.0

    def begin(self, uptime: float) -> None:
        """Note the uptime just after a reading."""
        self._uptime = uptime

    def uptime(self, seconds: float) -> float:
        """Return when a record was written: after the last complete reading, and before this one.

        Without such a reading it may be as old as it says, but is not from the future.
        """
        latest = self._uptime - seconds
        self._behind = min(self._behind, latest)
        if self._caught_up is not None:
            self._behind = max(self._behind, min(self._caught_up - seconds, latest))
        return seconds + self._behind

    def end(self, started: float, *, complete: bool) -> None:
        """Note whether a reading that started at this uptime left nothing for the next one."""
        self._caught_up = started if complete else None
