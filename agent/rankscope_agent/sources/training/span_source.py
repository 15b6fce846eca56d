"""Reads, on request, what the ranks on this node did besides steps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rankscope_agent.contract.model import SPAN_OUTCOMES, RankIdentity, SpanRow
from rankscope_agent.contract.shards import Jobs
from rankscope_agent.sources.training.format import NOT_MEASURED, RingError
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.ring_rows import NS, RingAnswer
from rankscope_agent.sources.training.spans import (
    AFTER_SIGTERM,
    BESIDE_TRAINING,
    IN_MEMORY,
    UNKNOWN_STEP,
    Span,
    open_spans,
    read_spans,
)


class RingSpanSource:
    """Spans of a node; see `rankscope_agent.contract.model.SpanSource`.

    Args:
        rings: where the rings of the spans are.
    """

    def __init__(self, rings: RingStepSource) -> None:
        self._rings = rings

    def spans(self, jobs: Jobs, since_unix_seconds: float) -> Iterator[SpanRow]:
        """Yield spans that began at or after a time or are still open; a bad file has none.

        Args:
            jobs: the requested jobs.
            since_unix_seconds: spans that began earlier are left out, unless they are open.
        """
        for answer in self._rings.rings_of(jobs):
            for span in self.of_ring(answer):
                if span.start_unix_ns / NS >= since_unix_seconds or span.is_open:
                    yield _row(answer.identity, span)

    def of_ring(self, answer: RingAnswer) -> Sequence[Span]:
        """Return the spans of a ring that has been read, oldest first; a bad file has none."""
        with suppress(OSError, RingError), self._rings.reopened(answer) as (directory, ring):
            descriptor = open_spans(directory, ring)
            if descriptor is not None:
                try:
                    return read_spans(descriptor)
                finally:
                    os.close(descriptor)
        return ()


def outcome(span: Span, *, alive: bool) -> str:
    """Return how a span ended, one of `SPAN_OUTCOMES`: an open one ends with its process."""
    return "interrupted" if span.is_open and not alive else SPAN_OUTCOMES[span.outcome]


def _row(identity: RankIdentity, span: Span) -> SpanRow:
    """Return a span in the order of `SPAN_COLUMNS`."""
    return (
        identity.job_id,
        identity.rank,
        identity.node,
        identity.attempt,
        span.kind_name,
        round(span.start_unix_ns / NS, 6),
        _seconds(span.duration_ns),
        _seconds(span.blocked_ns),
        None if span.size == NOT_MEASURED else span.size,
        None if span.step == UNKNOWN_STEP else span.step,
        outcome(span, alive=identity.alive),
        bool(span.flags & BESIDE_TRAINING),
        bool(span.flags & AFTER_SIGTERM),
        bool(span.flags & IN_MEMORY),
        f"{span.target:08x}" if span.target else None,
    )


def _seconds(duration_ns: int) -> float | None:
    return None if duration_ns == NOT_MEASURED else round(duration_ns / NS, 9)
