"""A log that is being followed, and the framing that unwraps it."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.sources.nccl_log.streams import NO_POD, LogStream


@dataclass(slots=True)
class Following:
    """A log, and the framing that unwraps it.

    Args:
        at_end: whether it was read to its end, so that what comes next is new.
        behind: whether the last run did not reach its end.
        has_content: whether it contains lines of NCCL.
    """

    stream: LogStream
    framing: Unframer
    at_end: bool = False
    behind: bool = True
    has_content: bool = False

    def written_at(self, now: float) -> float | None:
        """Return when what was just read was written at the latest (Unix time); None for pods.

        The clock of a file server only counts for what was there before.
        """
        if self.stream.location.owner != NO_POD:
            return None
        return now if self.at_end else min(now, self.stream.written_at)
