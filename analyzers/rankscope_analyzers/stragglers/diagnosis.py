"""From step records to verdicts, for `rankscope diagnose`, the watch and the demo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np
import pandas as pd

from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.profiles import flight_records
from rankscope_analyzers.steps import clocks, far_clocks, first_steps, frames
from rankscope_analyzers.steps.clocks import ClockOffset
from rankscope_analyzers.steps.far_clocks import Apart
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.steps.layout import Layout, layout
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import (
    checkpoint_share,
    cpu_contention,
    feed,
    incident_findings,
    sampled_steps,
    unobserved_ranks,
    verdict,
    what_if,
)
from rankscope_analyzers.stragglers.feed import Detection
from rankscope_analyzers.stragglers.followed_jobs import judge_once
from rankscope_analyzers.stragglers.verdict import Verdict
from rankscope_analyzers.text.sanitize import visible


class Follower(Protocol):
    """Keeps the state of running jobs from poll to poll."""

    first_steps: dict[str, float]

    def start_poll(self) -> None:
        """Start a poll of all jobs."""
        ...

    def update(
        self, name: str, records: pd.DataFrame, job: Layout, start: pd.DataFrame | None = None
    ) -> Detection:
        """Add the new records of a job; return its incidents as of the newest record."""
        ...


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict on a job's step times, and the steps that it is based on."""

    verdict: Verdict
    frame: StepFrame


def diagnose(jobs: Iterable[JobRecords]) -> tuple[Verdict, ...]:
    """Return a verdict for each job.

    Raises:
        rankscope_analyzers.steps.records.RecordError: the records of a job cannot be analysed.
    """
    return tuple(diagnosis(job).verdict for job in jobs)


@dataclass(frozen=True, slots=True)
class TimingResults:
    """The diagnoses of several jobs.

    Args:
        diagnoses: of the jobs that could be judged.
        unusable: why the records of other jobs cannot be judged, by job.
        errors: of the jobs on which an analyzer raised.
        first_steps: seconds that first steps of jobs took, by job, where that is known.
    """

    diagnoses: tuple[Diagnosis, ...] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[AnalysisError, ...] = ()
    first_steps: Mapping[str, float] = field(default_factory=dict)


def diagnose_each(jobs: Iterable[JobRecords], followed: Follower | None = None) -> TimingResults:
    """Diagnose jobs, each separately: an error on one job does not affect other verdicts.

    Args:
        jobs: their records.
        followed: state of the same running jobs from earlier polls, None if there were none.
    """
    if followed is not None:
        followed.start_poll()
    diagnoses: list[Diagnosis] = []
    unusable: dict[str, str] = {}
    errors: list[AnalysisError] = []
    began: dict[str, float] = {} if followed is None else followed.first_steps
    for job in jobs:
        first = attempt("timing", job.job_id, partial(first_steps.longest, job))
        if isinstance(first, float):
            began[job.job_id] = max(first, began.get(job.job_id, 0.0))
        result = attempt("timing", job.job_id, partial(_diagnosis_or_reason, job, followed))
        if isinstance(result, AnalysisError):
            errors.append(result)
        elif isinstance(result, str):
            unusable[job.job_id] = result
        else:
            diagnoses.append(result)
    return TimingResults(tuple(diagnoses), unusable, tuple(errors), dict(began))


def _diagnosis_or_reason(job: JobRecords, followed: Follower | None) -> Diagnosis | str:
    try:
        # Values that were not measured, or took no time, are NaN here; NumPy's warnings would only
        # distract.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return diagnosis(job, followed)
    except RecordError as error:
        return visible(f"its step records cannot be judged: {error}")


def diagnosis(job: JobRecords, followed: Follower | None = None) -> Diagnosis:
    """Return the verdict of a job with its steps.

    Args:
        job: its records.
        followed: state from earlier polls, None if there were none.

    Raises:
        rankscope_analyzers.steps.records.RecordError: its records cannot be analysed.
    """
    try:
        return _judged(job, followed)
    except RecordError as error:
        raise RecordError(f"{job.path}: {error}" if job.path else str(error)) from error


def _judged(job: JobRecords, followed: Follower | None) -> Diagnosis:
    job, apart = _aligned(job)
    frame = frames.build(job.job_id, job.records, job.world_size, newest_run=job.live)
    offsets = () if clocks.hosts_run_ahead(job.records) else clocks.offsets(frame)
    frame, records, windows = _completed(frame, job, offsets)
    frame = replace(frame, without_gpus=job.without_gpus, gpus_of_ranks=job.gpus_of_ranks)
    job_layout = _layout(job, frame)
    detection = _detect(job, records, job_layout, followed)
    waiting_share = cpu_contention.cpu_wait_share(frame)
    silent = unobserved_ranks.fallen_silent(frame)
    certain = incident_findings.findings(frame, detection.incidents, silent)
    findings = tuple(
        sampled_steps.with_copies(cpu_contention.with_doubt(one, waiting_share), records)
        for one in certain
    )
    flat = not job_layout.by_groups or len(set(frame.stages.tolist())) == 1
    ideals = what_if.ideals(frame, job_layout) if flat else None
    base = verdict.judge(frame, findings, detection.known, ideals)
    waiting = unobserved_ranks.warnings(frame, job_layout, findings, silent) if flat else ()
    waited = 0.0 if waiting else unobserved_ranks.unexplained_wait(frame, findings, silent)
    doubt = max(waited, waiting_share if waiting_share >= cpu_contention.HIGH_SHARE else 0.0)
    result = replace(
        base,
        unobserved=(
            *job.notes,
            *waiting,
            *unobserved_ranks.possible_cause(frame, silent, waited),
            *unobserved_ranks.silence(silent),
            *detection.notes,
            *_far_apart(apart),
            *windows,
            *sampled_steps.notes(job.records),
            *_not_followed(job, followed),
            *base.unobserved,
        ),
        clock_offsets=tuple(_total(one, apart) for one in offsets),
        asides=(
            *_asides(detection),
            *checkpoint_share.note(frame, job.beside),
            *cpu_contention.note(waiting_share),
        ),
        confidence=base.confidence if base.cause else base.confidence * (1.0 - doubt),
    )
    return Diagnosis(result, frame)


def _aligned(job: JobRecords) -> tuple[JobRecords, Apart]:
    """Return a job by the clocks of most ranks, and by how much the other clocks are ahead.

    Windows of collectives, and the records that belong to them, are aligned by separate offsets.
    """
    apart = far_clocks.NONE if job.windows else far_clocks.ahead(job.records)
    if not apart:
        return job, apart
    start = None if job.start is None else far_clocks.moved(job.start, apart)
    return replace(job, records=far_clocks.moved(job.records, apart), start=start), apart


def _far_apart(apart: Apart) -> Iterator[str]:
    """Describe the correction of clocks, in two sentences for any number of nodes and ranks."""
    alone = {f"rank {rank} of node {node}": by for (node, rank), by in apart.ranks.items()}
    nodes = {f"node {node}": by for node, by in apart.nodes.items()}
    for clocks_of in filter(None, (nodes, alone)):
        who, by = max(clocks_of.items(), key=lambda one: abs(one[1]))
        others = "" if len(clocks_of) == 1 else f", as {len(clocks_of) - 1} more do by other times"
        yield (
            f"{who} ends steps {abs(by):.1f} s {'later' if by > 0 else 'earlier'} than others by"
            f" its clock{others}: such times are moved to where the others' are"
        )


def _total(left: ClockOffset, apart: Apart) -> ClockOffset:
    """Return the offset of a clock whose times were moved before."""
    return replace(left, seconds=left.seconds + apart.nodes.get(left.node, 0.0))


def _detect(
    job: JobRecords, records: pd.DataFrame, job_layout: Layout, followed: Follower | None
) -> Detection:
    """Judge the new records of a job, or all of them if earlier polls cannot be used."""
    # Sampled windows of collectives add to steps that were judged long ago.
    if followed is not None and job.live and not job.windows:
        return followed.update(job.job_id, records, job_layout, job.start)
    if job.start is not None and not job.windows:
        return judge_once(records, job_layout, job.start)
    return feed.detect_latest(FrameTable(records), job_layout)


def _not_followed(job: JobRecords, followed: Follower | None) -> Iterator[str]:
    """Describe the baseline of a job that is judged anew at each poll."""
    if followed is not None and job.live and job.windows:
        yield (
            "sampled windows of collectives tell of steps long after their end: the job is compared"
            " with the time that a poll shows, not with its own beginning"
        )


def _layout(job: JobRecords, frame: StepFrame) -> Layout:
    """Return the layout in a trace's metadata; for other jobs the ranks' groups define it."""
    if job.meta:
        return layout(job.meta, frame.world_size)
    return Layout(frame.world_size, 1, 1, 0, wall=True, by_groups=True)


MINIMUM_NOTED_SHARE = 0.025
"""Share of the time above which it is reported that all ranks wait for rank 0."""


def _asides(detection: Detection) -> Iterator[str]:
    waits, steps, seconds = (
        detection.rank_zero_waits,
        detection.length.steps,
        detection.length.seconds,
    )
    if not waits.steps or waits.seconds < MINIMUM_NOTED_SHARE * seconds:
        return
    yield (
        f"In {waits.steps} of {steps} steps all ranks waited for the first one,"
        f" {waits.seconds:.3g} s or {min(waits.seconds / seconds, 1.0):.0%} of the time together:"
        " it wrote a checkpoint, evaluated or logged."
    )


def _completed(
    frame: StepFrame, job: JobRecords, offsets: tuple[ClockOffset, ...]
) -> tuple[StepFrame, pd.DataFrame, tuple[str, ...]]:
    """Complete a frame with sampled windows of collectives; add notes on what they lack."""
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
