"""Which logs outside of pods are followed if there are too many: those written most recently.

Nothing removes them when their jobs end, so that those of earlier jobs soon are most of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from pathlib import Path

from rankscope_agent.sources.nccl_log.streams import NO_POD, LogLocation, written_ns

LOOKED_AT = 256
"""Logs that are not followed of which a scan asks when they were written last: all of a full
directory within 80 seconds. A file server is asked no more often than for the followed ones."""

QUIET_NS = 600 * 10**9
"""A followed log keeps its place until another one was written this much later: logs of a running
job that pause do not take turns with one another."""


class RecentLogs:
    """When logs outside of pods were written last, as far as it matters."""

    def __init__(self) -> None:
        self._written: Mapping[Path, int] = {}

    def in_order(
        self, locations: Collection[LogLocation], followed: Set[Path], most: int
    ) -> Sequence[LogLocation]:
        """Return logs in the order in which they are followed as long as there is room.

        Args:
            locations: of all logs.
            followed: the paths of those that are followed.
            most: how many may be followed; if there are no more, their order does not matter.
        """
        paths = [one.path for one in locations if one.owner == NO_POD]
        if len(locations) > most:
            self._look(paths, followed)
        else:
            self._written = {}

        def turn(one: LogLocation) -> tuple[bool, int]:
            if one.owner == NO_POD:
                bonus = QUIET_NS if one.path in followed else 0
                return False, -self._written.get(one.path, 0) - bonus
            return one.path not in followed, 0

        return sorted(locations, key=turn)

    def _look(self, paths: Sequence[Path], followed: Set[Path]) -> None:
        """Ask for the times of new and of followed logs, and in turns of some of the others."""
        there = set(paths)
        known = {path: at for path, at in self._written.items() if path in there}
        due = [path for path in paths if path not in known or path in followed]
        due += [path for path in known if path not in followed][:LOOKED_AT]
        for path in due:
            known.pop(path, None)
            known[path] = written_ns(path)
        self._written = known
