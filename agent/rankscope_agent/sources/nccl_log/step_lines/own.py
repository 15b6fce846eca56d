"""Lines about steps found by a user's own pattern; a pattern that takes too long is disabled."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from rankscope_agent.settings.step_pattern import MAX_LINE, StepPattern
from rankscope_agent.sources.nccl_log.step_lines.printed import line_of
from rankscope_agent.sources.nccl_log.step_lines.values import OWN, StepLine

log = logging.getLogger(__name__)

SLOW_SECONDS = 0.05
"""CPU time for one line: a thousand times what an ordinary one takes."""

MOST_SLOW = 3
"""Lines that may exceed it."""


class OwnLines:
    """A user's pattern, for all pods of the node.

    Args:
        pattern: None if there is none.
        clock: CPU seconds of the calling thread.
    """

    def __init__(
        self, pattern: StepPattern | None, clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._pattern = pattern
        self._clock = clock
        self._slow = 0

    @property
    def marks(self) -> Sequence[bytes]:
        """Marks that matching lines contain; empty once the pattern has been disabled."""
        return (self._pattern.mark,) if self._pattern and self._slow < MOST_SLOW else ()

    def read(self, line: bytes, begin: int) -> StepLine | None:
        """Read a line from a given position; return None if the pattern does not match."""
        pattern = self._pattern
        if pattern is None or self._slow >= MOST_SLOW:
            return None
        started = self._clock()
        found = pattern.expression.match(line, begin, begin + len(pattern.mark) + MAX_LINE)
        if self._clock() - started > SLOW_SECONDS:
            self._slow += 1
            if self._slow == MOST_SLOW:
                log.warning("--training.step-pattern takes too long on these lines: disabled")
        if found is None:
            return None
        read = line_of(OWN, found.groupdict())
        return None if read == StepLine(OWN) else read
