"""Series about the looks for new steps: how old the last one is, and what it missed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rankscope_agent.contract.metrics import watch as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.contract.shards import Shard
from rankscope_analyzers.intake.stream_health import StreamHealth
from rankscope_analyzers.text.sanitize import name as inert


@dataclass(frozen=True, slots=True)
class StepLook:
    """The result of a look for new steps.

    Args:
        answered_at: Unix time of the last look that an agent answered, None if none did.
        seconds: that this look took.
        health: of the agents that were queried.
        records: in agents' responses, since the watch leads.
        dropped: of these, those that were not judged.
    """

    answered_at: float | None
    seconds: float
    health: StreamHealth
    records: int
    dropped: int


def samples(look: StepLook, shard: Shard) -> Iterator[Sample]:
    """Yield the series of a look.

    Args:
        look: the last one.
        shard: of the jobs that the watch follows.
    """
    if look.answered_at is not None:
        yield metrics.WATCH_STEP_LOOK.sample(
            look.answered_at, shard=str(shard.index), shards=str(shard.total)
        )
    yield metrics.WATCH_STEP_LOOK_SECONDS.sample(look.seconds)
    health = look.health
    for state, count in (
        ("answering", health.answering),
        ("new", health.new),
        ("silent", health.silent),
    ):
        yield metrics.WATCH_STEP_AGENTS.sample(count, state=state)
    yield metrics.WATCH_STEP_RECORDS.sample(look.records - look.dropped, outcome="judged")
    yield metrics.WATCH_STEP_RECORDS.sample(look.dropped, outcome="dropped")
    for job_id, ranks in health.silent_ranks.items():
        yield metrics.JOB_SILENT_RANKS.sample(ranks, job_id=inert(job_id))
