"""Time-outs for agents: those that were late get less time for a while."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from rankscope_analyzers.intake.deadline import Deadline

LATE_SECONDS = 1.5
"""For an answer of an agent that was late: hundreds of dead ones must not make every look long. A
lost SYN is repeated after 1 s; living agents answer in milliseconds, so that they come back."""

SHORT_TIMEOUTS = 9
"""Questions that a late agent gets as little time for: what takes long for good reasons (a week of
steps from a busy node) is waited for at every tenth look, and whoever drips on purpose, and answers
in between, costs no more of them."""


class AgentTimeouts:
    """What is known of agents that were late, by address and path."""

    def __init__(self) -> None:
        self._short: dict[tuple[str, str], int] = {}

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
        return Deadline(min(seconds, LATE_SECONDS), connect_seconds=LATE_SECONDS)

    def failed(self, url: str, path: str, deadline: Deadline) -> None:
        """Note that no answer came, if that took longer than a late agent is waited for."""
        if deadline.seconds > LATE_SECONDS and deadline.passed > LATE_SECONDS:
            # Of a rack that dies at once not all get their whole time again at the same look.
            turn = zlib.crc32(url.encode()) % SHORT_TIMEOUTS
            self._short[url, path] = SHORT_TIMEOUTS + turn

    def keep(self, urls: Iterable[str]) -> None:
        """Forget all agents but these."""
        kept = set(urls)
        self._short = {key: left for key, left in self._short.items() if key[0] in kept}
