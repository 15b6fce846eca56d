"""Times without a step that are no hang: checkpoints, evaluations, other collectives, other work.

A probe marks most of them. If none is marked, a rank that uses a processor, or whose stack is in a
library that saves, is active: it is given more time than one that does nothing at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.model import Metric
from rankscope_agent.contract.stalls import RankStall
from rankscope_analyzers.hangs.suspects import since_newest_call
from rankscope_analyzers.hangs.waits import waits
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.pace import OpenSpan
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.layers.rank_progress import Progress

READS: tuple[Metric, ...] = (training.SPAN_BEGAN, training.CHECKPOINT_LAST_WRITE)

FIRST_SPAN_SECONDS, SPAN_FACTOR = 1800.0, 2.0
"""The first checkpoint or evaluation of a job may take half an hour, later ones twice the longest
so far."""

WORKING_SHARE = 0.3
"""Fraction of a core: a program that computes, decodes or packs uses a whole one; one that waits in
a system call uses none, and the threads of its libraries a hundredth."""

WORKING_FACTOR = 10.0
"""Factor on the allowed pause if the rank that the others wait for works: ten minutes by default,
like the first step. Work that never ends is then called a hang."""

_SAVING = re.compile(r"/torch/(?:serialization\.py|distributed/checkpoint/)|/safetensors/|/orbax/")
"""Files of libraries that write checkpoints, which wait for storage most of the time."""


def open_spans(observed: Observed, job_id: str, living: Sequence[Progress]) -> Iterator[OpenSpan]:
    """Yield what live ranks do outside of steps, as of their agents' newest pages."""
    alive = {str(rank.rank): rank for rank in living}
    writes = by_rank(observed, training.CHECKPOINT_LAST_WRITE, job_id)
    for series in observed.of(training.SPAN_BEGAN, job_id=job_id):
        rank, kind = alive.get(series.labels.get("rank", "")), series.labels.get("kind", "")
        if rank is None or series.times[-1] < rank.read_unix_seconds:
            continue
        known = kind == "checkpoint_save" and rank.rank in writes
        yield OpenSpan(rank.rank, kind, series.last, writes[rank.rank].last if known else None)


def newest_end(observed: Observed, job: JobView, living: Sequence[Progress]) -> float | None:
    """Return when the newest checkpoint or the like ended, by the nodes' clocks.

    Agents report it for ranks that stand still; otherwise it is when a span was last seen open.
    """
    alive = {str(rank.rank): rank for rank in living}
    ends = [
        stall.span_ended_unix_seconds
        for stall in job.stalls.values()
        if str(stall.rank) in alive and stall.span_ended_unix_seconds is not None
    ]
    for series in observed.of(training.SPAN_BEGAN, job_id=job.job_id):
        rank = alive.get(series.labels.get("rank", ""))
        if rank is not None and series.times[-1] < rank.read_unix_seconds:
            ago = rank.read_unix_seconds - float(series.times[-1])
            ends.append(rank.now_unix_seconds - ago)
    return max(ends, default=None)


def within_span(job: JobView, quietest: Progress, allowed: float) -> bool:
    """Return True while a rank is in a checkpoint or the like that does not take too long."""
    return any(_runs(span, quietest.now_unix_seconds, allowed) for span in job.open_spans)


def _runs(span: OpenSpan, now: float, allowed: float) -> bool:
    longest = span.longest_seconds
    limit = FIRST_SPAN_SECONDS if longest is None else max(SPAN_FACTOR * longest, allowed)
    return now - span.since_unix_seconds < limit


def exchanges(job: JobView, allowed: float) -> bool:
    """Return True if ranks keep launching collectives: an evaluation, or steps that none marks."""
    ago = since_newest_call(job.stalls.values())
    return ago is not None and ago < allowed


def works(stalls: Mapping[int, RankStall], awaited: Sequence[int]) -> bool:
    """Return True if a rank that the others wait for is at work, or any if none waits.

    CPU time in a collective shows nothing: waiting for a GPU takes a whole core.
    """
    waiting = {wait.rank for wait in waits(stalls)}
    asked = awaited if waiting else stalls.keys()
    return any(_works(stalls[rank]) for rank in asked if rank in stalls and rank not in waiting)


def _works(stall: RankStall) -> bool:
    saving = any(_SAVING.search(frame.file) for frame in stall.stack)
    return (stall.cpu_share or 0.0) >= WORKING_SHARE or (saving and stall.state != "D")
