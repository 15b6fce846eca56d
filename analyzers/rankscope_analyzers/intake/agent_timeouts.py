"""Time-outs for agents: those that were late get less time for a while."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping

from rankscope_analyzers.intake.deadline import Deadline

LATE_SECONDS = 1.5
"""For an answer of an agent that was late, where hundreds were, and to connect to any of them: dead
ones must not make every look long. A lost SYN is repeated after 1 s."""

SHARED_SECONDS = 6.0
"""What all that were late may add to a look. So where they are few, one that is slow, as on a node
without a free CPU, is observed again as soon as it answers within that."""

SHORTER = 0.6
"""Of the time that an agent gets which was not late, as long as that is less."""

FEWEST_AT_ONCE, MOST_AT_ONCE, ROUNDS = 64, 512, 4
"""Agents that are asked at a time: a quarter of all, so that those that never answer delay others
by one or two time-outs, however many there are."""

LARGE_AT_ONCE = 32
"""The same for answers that may take megabytes each: enough for a rack, few enough for one
workstation's sockets and memory."""

LARGE_ANSWERS = frozenset(
    f"/api/v1/{name}"
    for name in ("ranks", "steps", "step_starts", "spans", "stalls", "collectives")
)
"""Paths of these, and what is asked for along with them."""

SHORT_TIMEOUTS = 9
"""Questions that a late agent gets as little time for: what takes long for good reasons (a week of
steps from a busy node) is waited for at every tenth look, and one that drips on purpose, and
answers in between, costs no more of them."""


def at_once(agents: int) -> int:
    """Return how many of so many agents are asked at a time for an answer that is not large."""
    return max(FEWEST_AT_ONCE, min(MOST_AT_ONCE, agents // ROUNDS))


class AgentTimeouts:
    """What is known of agents that were late, by address and path."""

    def __init__(self) -> None:
        self._short: dict[tuple[str, str], int] = {}
        self._late: Mapping[str, int] = {}
        self._agents = 0

    def deadline(self, url: str, path: str, seconds: float, silence_seconds: float) -> Deadline:
        """Return until when an answer has to be there.

        Args:
            url: the agent's address.
            path: what is asked for, without its query.
            seconds: for the whole answer, of an agent that was not late.
            silence_seconds: for each wait for a byte, likewise.
        """
        left = self._short.get((url, path), 0)
        if not left:
            return Deadline(seconds, silence_seconds)
        self._short[url, path] = left - 1
        together = LARGE_AT_ONCE if path in LARGE_ANSWERS else at_once(self._agents)
        rounds = math.ceil(self._late.get(path, 1) / together)
        share = min(SHARED_SECONDS, SHORTER * seconds) / max(1, rounds)
        return Deadline(min(seconds, max(LATE_SECONDS, share)), connect_seconds=LATE_SECONDS)

    def failed(self, url: str, path: str, deadline: Deadline) -> None:
        """Note that no answer came; one that refused at once, or got little time, was not late."""
        short = deadline.connect_seconds <= LATE_SECONDS
        if not short and deadline.passed > LATE_SECONDS:
            # Of a rack that dies at once not all get their whole time again at the same look.
            turn = zlib.crc32(url.encode()) % SHORT_TIMEOUTS
            self._short[url, path] = SHORT_TIMEOUTS + turn

    def keep(self, urls: Iterable[str]) -> None:
        """Forget all agents but these, before a look at them."""
        kept = set(urls)
        self._agents = len(kept)
        self._short = {key: left for key, left in self._short.items() if key[0] in kept}
        self._late = Counter(path for (_, path), left in self._short.items() if left)
