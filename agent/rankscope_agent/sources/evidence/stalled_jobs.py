"""Finds the stalled jobs of this node from its rings alone: pure except for reading them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.ring_rows import RingAnswer
from rankscope_agent.sources.training.span_source import RingSpanSource

STANDS_SECONDS = 60.0
"""Time without steps after which a job is considered hung, by default."""

STANDS_STEPS = 5.0
FIRST_STEP_SECONDS = 600.0
LONGEST_SPAN_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class StalledJob:
    """A job all of whose live ranks on this node are stalled.

    Args:
        since_unix_seconds: when the newest of their steps ended or, without steps, the newest ring
            was created.
    """

    job_id: str
    since_unix_seconds: float


class StalledJobs:
    """Looks for stalled jobs.

    Args:
        rings: the node's rings.
        spans: what ranks do besides steps.
    """

    def __init__(self, rings: RingStepSource, spans: RingSpanSource) -> None:
        self._rings = rings
        self._spans = spans

    def at(self, now: float) -> Iterator[StalledJob]:
        """Yield the jobs that are stalled at a given time."""
        jobs: dict[str, dict[int, RingAnswer]] = {}
        for ring in self._rings.rings_of(None):
            if ring.identity.alive:
                jobs.setdefault(ring.identity.job_id, {})[ring.identity.rank] = ring
        for job_id, ranks in jobs.items():
            if all(_is_late(ring, now) for ring in ranks.values()) and not self._busy(ranks, now):
                since = max(ring.active_unix_seconds for ring in ranks.values())
                yield StalledJob(job_id, since)

    def _busy(self, ranks: Mapping[int, RingAnswer], now: float) -> bool:
        """Return True if a rank is in a checkpoint or the like, or was shortly before."""
        for ring in ranks.values():
            for span in self._spans.of_ring(ring):
                began = span.start_unix_ns / 1e9
                if span.is_open and now - began < LONGEST_SPAN_SECONDS:
                    return True
                if not span.is_open and now - began - span.duration_ns / 1e9 < STANDS_SECONDS:
                    return True
        return False


def _is_late(ring: RingAnswer, now: float) -> bool:
    steps = STANDS_STEPS * (ring.last_step_seconds or 0.0)
    allowed = max(STANDS_SECONDS, steps) if ring.newest else FIRST_STEP_SECONDS
    return now - ring.active_unix_seconds >= allowed
