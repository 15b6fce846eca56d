"""Notices of nodes, each counted once: across restarts, changes of leader and outages. Pure.

A notice counts when it appears on a node. Notices that the previous watch saw are known to this
one; those from before anything watched do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rankscope_analyzers.workloads.nodes import NOTICES, NodeFacts, Notice

MOST_KNOWN = 8192
"""Notices that a saved state names, of 50 bytes each. Of further ones, the next watch does not know
which came while nothing watched, and counts none of these."""


class NodeNotices:
    """Counts the notices of nodes."""

    def __init__(self) -> None:
        self.totals: dict[Notice, int] = dict.fromkeys(NOTICES, 0)
        self._known: set[str] | None = None
        self._unnamed_after = ""  # notices after it were left out of the state; empty if none were

    def look(self, nodes: Iterable[NodeFacts]) -> bool:
        """Count the notices that appeared since the last look; return True if any did.

        Args:
            nodes: all nodes.
        """
        present = {f"{node.uid}/{notice}": notice for node in nodes for notice in node.notices}
        known = self._known
        fresh = [
            one
            for key, one in present.items()
            if known is not None and key not in known and not self._may_be_old(key)
        ]
        for notice in fresh:
            self.totals[notice] += 1
        self._known, self._unnamed_after = set(present), ""
        return bool(fresh)

    def _may_be_old(self, key: str) -> bool:
        return self._unnamed_after != "" and key > self._unnamed_after

    def kept(self) -> dict[str, Any]:
        """Return all state to save, in JSON-ready form."""
        known = None if self._known is None else sorted(self._known)
        return {
            "totals": self.totals,
            "known": None if known is None else known[:MOST_KNOWN],
            "whole": known is None or (len(known) <= MOST_KNOWN and not self._unnamed_after),
        }

    @classmethod
    def of(cls, kept: Any) -> NodeNotices:
        """Return saved counts; none if the watch that saved the state counted no notices.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: they are invalid.
        """
        made = cls()
        if kept is None:
            return made
        for notice in NOTICES:
            count = kept["totals"].get(notice, 0)
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise ValueError(f"{count!r} is not a number of notices")
            made.totals[notice] = count
        if kept["known"] is not None:
            made._known = {str(key) for key in kept["known"]}
            # Earlier versions did not say whether the state names all.
            if not kept.get("whole", len(made._known) < MOST_KNOWN):
                made._unnamed_after = max(made._known, default="")
        return made
