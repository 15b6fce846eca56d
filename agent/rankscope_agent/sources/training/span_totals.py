"""Sums up what a rank did beside steps, across restarts of its process; no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankscope_agent.contract.model import SPAN_OUTCOMES
from rankscope_agent.sources.training.spans import IN_MEMORY, Span
from rankscope_agent.sources.training.starts import RENDEZVOUS


class SpanTotals:
    """Checkpoints that a rank wrote so far, and what it is doing now.

    `last_success_unix_ns` and `last_write_ns` are of the newest one that succeeded, None before it.
    `began_unix_ns` is when the oldest of the open spans of a kind began.
    """

    __slots__ = (
        "began_unix_ns", "failures", "last_success_unix_ns", "last_write_ns", "write_ns", "writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.writes = self.failures = self.write_ns = 0
        self.last_success_unix_ns: int | None = None
        self.last_write_ns: int | None = None
        self.began_unix_ns: Mapping[str, int] = {}

    def add(self, ended: Iterable[Span]) -> None:
        """Add spans of any process that ended since the last time, interrupted ones included.

        What is written to memory is no checkpoint that would survive.
        """
        for span in ended:
            if span.kind_name == "checkpoint_save" and not span.flags & IN_MEMORY:
                self._add_write(span)

    def note_open(self, still_open: Iterable[Span]) -> None:
        """Take note of what the newest process is doing.

        Joining others is waiting for them, which excuses nobody from ending steps.
        """
        began: dict[str, int] = {}
        for span in still_open:
            if span.kind_name == RENDEZVOUS:
                continue
            known = began.get(span.kind_name, span.start_unix_ns)
            began[span.kind_name] = min(known, span.start_unix_ns)
        self.began_unix_ns = began

    def _add_write(self, span: Span) -> None:
        self.writes += 1
        if SPAN_OUTCOMES[span.outcome] != "done":
            self.failures += 1
            return
        self.write_ns += span.duration_ns
        end_unix_ns = span.start_unix_ns + span.duration_ns
        if end_unix_ns > (self.last_success_unix_ns or 0):
            self.last_success_unix_ns, self.last_write_ns = end_unix_ns, span.duration_ns
