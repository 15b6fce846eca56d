"""Time-outs for agents: those that were late get less time for a while."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping

from rankscope_analyzers.intake.deadline import Deadline

LATE_SECONDS = 1.5
"""Seconds for a response of an agent that was late, if hundreds were, and to connect to any of
them: dead ones must not make every look long. A lost SYN is repeated after 1 s."""

SHARED_SECONDS = 6.0
"""Seconds that all late agents together may add to a look. If they are few, a slow one, as on a
node without a free CPU, is observed again as soon as it answers within that time."""

SHORTER = 0.6
"""Fraction of the time that an agent gets that was not late, as long as that is less."""

FEWEST_AT_ONCE, MOST_AT_ONCE, ROUNDS = 64, 512, 4
"""Agents that are queried at a time: a quarter of all, so that those that never answer delay others
by one or two timeouts, however many there are."""

LARGE_AT_ONCE = 32
"""The same for responses of possibly several megabytes: enough for a rack, few enough for one
workstation's sockets and memory."""

LARGE_ANSWERS = frozenset(
    f"/api/v1/{name}"
    for name in ("ranks", "steps", "step_starts", "spans", "stalls", "collectives")
)
"""Paths of these, and paths that are requested along with them."""

SHORT_TIMEOUTS = 9
"""Requests with this short time in a row for a late agent: responses that take long for good
reasons (a week of steps from a busy node) are waited for at every tenth look, and an agent that is
slow on purpose and answers in between costs no more."""


def at_once(agents: int) -> int:
    """Return how many of `agents` agents are queried at a time for a response that is not large."""
    return max(FEWEST_AT_ONCE, min(MOST_AT_ONCE, agents // ROUNDS))


class AgentTimeouts:
    """What is known of agents that were late, by address and path."""

    def __init__(self) -> None:
        self._short: dict[tuple[str, str], int] = {}
        self._late: Mapping[str, int] = {}
        self._agents = 0

    def deadline(self, url: str, path: str, seconds: float, silence_seconds: float) -> Deadline:
        """Return the time by which a response has to arrive.

        Args:
            url: the agent's address.
            path: of the request, without its query.
            seconds: for the whole response, of an agent that was not late.
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
        """Record a missing response; refusals and short timeouts do not count as late."""
        short = deadline.connect_seconds <= LATE_SECONDS
        if not short and deadline.passed > LATE_SECONDS:
            # If a rack dies at once, not all of its agents get the full time again at the same
            # look.
            turn = zlib.crc32(url.encode()) % SHORT_TIMEOUTS
            self._short[url, path] = SHORT_TIMEOUTS + turn

    def keep(self, urls: Iterable[str]) -> None:
        """Forget all agents but these, before a look at them."""
        kept = set(urls)
        self._agents = len(kept)
        self._short = {key: left for key, left in self._short.items() if key[0] in kept}
        self._late = Counter(path for (_, path), left in self._short.items() if left)
