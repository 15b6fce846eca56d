"""From records to verdicts: what `rankscope diagnose`, the watch and the demo have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd

from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.profiles import flight_records
from rankscope_analyzers.steps import clocks, frames
from rankscope_analyzers.steps.clocks import ClockOffset
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.steps.layout import Layout, layout
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import crowding, dark_ranks, feed, verdict, what_if, wordings
from rankscope_analyzers.stragglers.feed import Judged
from rankscope_analyzers.stragglers.following import Followed, judged_once
from rankscope_analyzers.stragglers.verdict import Verdict
from rankscope_analyzers.text.sanitize import visible


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the timing of a job's steps says, and the steps that it was judged by."""

    verdict: Verdict
    frame: StepFrame


def diagnose(jobs: Iterable[JobRecords]) -> tuple[Verdict, ...]:
    """Return a verdict for each job.

    Raises:
        rankscope_analyzers.steps.records.RecordError: the records of a job cannot be analysed.
    """
    return tuple(diagnosis(job).verdict for job in jobs)


@dataclass(frozen=True, slots=True)
class Timed:
    """What the step records of several jobs say.

    Args:
        diagnoses: of the jobs that could be judged.
        senseless: why the records of the others make no sense, by job.
        errors: of the jobs on which an analyzer raised.
    """

    diagnoses: tuple[Diagnosis, ...] = ()
    senseless: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[AnalysisError, ...] = ()


def timed(jobs: Iterable[JobRecords], followed: Followed | None = None) -> Timed:
    """Diagnose jobs, each by itself: what is wrong with one costs no other its verdict.

    Args:
        jobs: their records.
        followed: what earlier looks at the same running jobs told, None if there were none.
    """
    if followed is not None:
        followed.look()
    found: list[Diagnosis] = []
    senseless: dict[str, str] = {}
    errors: list[AnalysisError] = []
    for job in jobs:
        made = attempt("timing", job.job_id, partial(_diagnosis_or_reason, job, followed))
        if isinstance(made, AnalysisError):
            errors.append(made)
        elif isinstance(made, str):
            senseless[job.job_id] = made
        else:
            found.append(made)
    return Timed(tuple(found), senseless, tuple(errors))


def _diagnosis_or_reason(job: JobRecords, followed: Followed | None) -> Diagnosis | str:
    try:
        # What was never measured, or took no time, is no number here: nobody is to be warned of it.
        with np.errstate(divide="ignore", invalid="ignore"):
            return diagnosis(job, followed)
    except RecordError as error:
        return visible(f"its step records cannot be judged: {error}")


def diagnosis(job: JobRecords, followed: Followed | None = None) -> Diagnosis:
    """Return the verdict of a job with its steps.

    Args:
        job: its records.
        followed: what earlier looks at it told, None if there were none.

    Raises:
        rankscope_analyzers.steps.records.RecordError: its records cannot be analysed.
    """
    try:
        return _judged(job, followed)
    except RecordError as error:
        raise RecordError(f"{job.path}: {error}" if job.path else str(error)) from error


def _judged(job: JobRecords, followed: Followed | None) -> Diagnosis:
    frame = frames.build(job.job_id, job.records, job.world_size, newest_run=job.live)
    offsets = clocks.offsets(frame)
    frame, records, windows = _completed(frame, job, offsets)
    arranged = _layout(job, frame)
    judged = _found(job, records, arranged, followed)
    waits = crowding.waited(frame)
    every = wordings.findings(frame, judged.incidents)
    found = tuple(crowding.doubted(one, waits) for one in every)
    said = verdict.judge(frame, found, judged.known)
    flat = not arranged.by_groups or len(set(frame.stages.tolist())) == 1
    waiting = dark_ranks.suspects(frame, arranged, found) if flat else ()
    whole = replace(
        said,
        unobserved=(*job.notes, *waiting, *judged.notes, *windows, *said.unobserved),
        what_if=what_if.ideals(frame, arranged) if flat else None,
        clock_offsets=offsets,
        asides=(*_asides(judged), *crowding.aside(waits)),
        confidence=said.confidence
        if said.cause or waits < crowding.MOST
        else said.confidence * (1.0 - waits),
    )
    return Diagnosis(whole, frame)


def _found(
    job: JobRecords, records: pd.DataFrame, arranged: Layout, followed: Followed | None
) -> Judged:
    """Judge what is new of a job, or all of it where earlier looks cannot have told the rest."""
    # Sampled windows of collectives tell of steps that were judged long ago.
    if followed is not None and job.live and not job.windows:
        return followed.judged(job.job_id, records, arranged, job.start)
    if job.start is not None and not job.windows:
        return judged_once(records, arranged, job.start)
    return feed.judge(FrameTable(records), arranged)


def _layout(job: JobRecords, frame: StepFrame) -> Layout:
    """Return what a trace says of its layout; of other jobs the ranks' groups tell it."""
    if job.meta:
        return layout(job.meta, frame.world_size)
    return Layout(frame.world_size, 1, 1, 0, wall=True, by_groups=True)


WORTH_SAYING = 0.025
"""Share of the time from which on it is told what first ranks do alone."""


def _asides(judged: Judged) -> Iterator[str]:
    waited, steps, whole = judged.chores, judged.length.steps, judged.length.seconds
    if not waited.steps or waited.seconds < WORTH_SAYING * whole:
        return
    yield (
        f"In {waited.steps} of {steps} steps all ranks waited for the first one,"
        f" {waited.seconds:.3g} s or {min(waited.seconds / whole, 1.0):.0%} of the time together:"
        " it wrote a checkpoint, evaluated or logged."
    )


def _completed(
    frame: StepFrame, job: JobRecords, offsets: tuple[ClockOffset, ...]
) -> tuple[StepFrame, pd.DataFrame, tuple[str, ...]]:
    """Add to a frame what sampled windows of collectives tell, and say what they do not."""
    if not job.windows:
        return frame, job.records, ()
    by_rank = clocks.per_rank(frame, offsets)
    try:
        records, notes = flight_records.complete(
            job.records, job.windows, by_rank, frame.world_size
        )
    except flight_records.WindowError as error:
        return frame, job.records, (str(error),)
    if records is job.records:
        return frame, records, notes
    frame = frames.build(job.job_id, records, job.world_size, newest_run=job.live)
    return frame, records, notes
