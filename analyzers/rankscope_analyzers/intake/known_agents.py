"""The last known agents of a cluster, so that not every evaluation needs the API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rankscope_analyzers.intake.cluster import TIMEOUT_SECONDS, ClusterError, NodeAgents
from rankscope_analyzers.text import wording

KNOWN_SECONDS = 10.0
"""Seconds to wait for an API server while there are addresses to continue with: a third of the
watch's interval. It lists thousands of pods in one or two seconds."""


@dataclass(frozen=True, slots=True)
class Known:
    """Agents' addresses.

    Args:
        addresses: by node, with doubts about them.
        stale: a sentence on their age and the reason; empty if the cluster has just answered.
    """

    addresses: NodeAgents
    stale: str = ""


class KnownAgents:
    """Queries the cluster for its agents, and remembers them.

    Args:
        look_up: queries, within the seconds that it is given. Raises ClusterError if it gets no
            answer.
        vouched: True if agents prove their identity before they receive anything: then an address
            can be used however old it is. Otherwise the address of one that has fallen silent may
            by now belong to any pod, and is not used again until the cluster lists it again.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        look_up: Callable[[float], NodeAgents],
        vouched: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look_up = look_up
        self._vouched = vouched
        self._clock = clock
        self._listed_at: float | None = None
        self._known = Known(NodeAgents({}))

    def now(self) -> Known:
        """Return the agents that the cluster lists, or listed when it last answered.

        Raises:
            ClusterError: it does not answer and never did.
        """
        try:
            first = self._listed_at is None
            found = self._look_up(TIMEOUT_SECONDS if first else KNOWN_SECONDS)
        except ClusterError as error:
            if self._listed_at is None:
                raise
            old = wording.age(self._clock() - self._listed_at)
            why = f"the addresses of agents are those of {old} ago, because {error}"
            self._known = Known(self._known.addresses, why)
        else:
            self._listed_at = self._clock()
            self._known = Known(found)
        return self._known

    def note_answers(self, addresses: Iterable[str]) -> None:
        """Record which of those returned last have answered."""
        if self._known.stale and not self._vouched:
            answered = set(addresses)
            known = self._known.addresses
            kept = {node: url for node, url in known.items() if url in answered}
            self._known = Known(NodeAgents(kept, known.doubts), self._known.stale)
