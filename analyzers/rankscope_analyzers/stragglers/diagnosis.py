"""From records to verdicts: what `rankscope diagnose` and the demo have in common.

There are two detectors, fed by the same cleaning of records. The incremental one (`stragglers`)
knows seven classes and every layout, and judges traces that say how their ranks work together. The
small analyzers (`running`) judge running jobs that do not. One could not replace the other: on 30
recorded runs of four gloo ranks that shared two busy cores, both named all 20 injected culprits,
but the incremental one found unequal sequences in 9 of 10 healthy runs and a slow GPU in the tenth:
where ranks take turns on a core, the slowest one changes from step to step, and step times alone
cannot tell that from work that is dealt unevenly. The small ones accused nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from rankscope_analyzers.findings.finding import Analyzer
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.profiles import flight_records
from rankscope_analyzers.steps import clocks, frames
from rankscope_analyzers.steps.clocks import ClockOffset
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.steps.layout import Layout, layout
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import dark_ranks, feed, verdict, what_if, wordings
from rankscope_analyzers.stragglers.running import data_skew
from rankscope_analyzers.stragglers.running.analyzers import ANALYZERS
from rankscope_analyzers.stragglers.verdict import Verdict
from rankscope_analyzers.text.inert_text import visible


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


def timed(jobs: Iterable[JobRecords]) -> Timed:
    """Diagnose jobs, each by itself: what is wrong with one costs no other its verdict."""
    found: list[Diagnosis] = []
    senseless: dict[str, str] = {}
    errors: list[AnalysisError] = []
    for job in jobs:
        made = attempt("timing", job.job_id, partial(_diagnosis_or_reason, job))
        if isinstance(made, AnalysisError):
            errors.append(made)
        elif isinstance(made, str):
            senseless[job.job_id] = made
        else:
            found.append(made)
    return Timed(tuple(found), senseless, tuple(errors))


def _diagnosis_or_reason(job: JobRecords) -> Diagnosis | str:
    try:
        # What was never measured, or took no time, is no number here: nobody is to be warned of it.
        with np.errstate(divide="ignore", invalid="ignore"):
            return diagnosis(job)
    except RecordError as error:
        return visible(f"its step records cannot be judged: {error}")


def diagnosis(job: JobRecords) -> Diagnosis:
    """Return the verdict of a job with its steps.

    Raises:
        rankscope_analyzers.steps.records.RecordError: its records cannot be analysed.
    """
    try:
        return _judged(job)
    except RecordError as error:
        raise RecordError(f"{job.path}: {error}" if job.path else str(error)) from error


def _judged(job: JobRecords) -> Diagnosis:
    frame = frames.build(job.job_id, job.records, job.world_size, newest_run=job.live)
    offsets = clocks.offsets(frame)
    frame, windows = _completed(frame, job, offsets)
    known = "compute_timing" in job.meta
    arranged = layout(job.meta if known else {}, frame.world_size)
    analyzers = _incidents(frame, job, arranged) if known else ANALYZERS
    said = verdict.judge(frame, analyzers)
    found = (*([said.cause] if said.cause else []), *said.others)
    stages = len(set(frame.stages.tolist()))
    waiting = dark_ranks.suspects(frame, arranged, found) if known or stages == 1 else ()
    limits = () if known else _limits(stages)
    whole = replace(
        said,
        unobserved=(*job.notes, *waiting, *limits, *windows, *said.unobserved),
        what_if=what_if.ideals(frame, arranged) if known or stages == 1 else None,
        clock_offsets=offsets,
    )
    return Diagnosis(whole, frame)


def _completed(
    frame: StepFrame, job: JobRecords, offsets: tuple[ClockOffset, ...]
) -> tuple[StepFrame, tuple[str, ...]]:
    """Add to a frame what sampled windows of collectives tell, and say what they do not."""
    if not job.windows:
        return frame, ()
    by_rank = clocks.per_rank(frame, offsets)
    try:
        records, notes = flight_records.complete(
            job.records, job.windows, by_rank, frame.world_size
        )
    except flight_records.WindowError as error:
        return frame, (str(error),)
    if records is job.records:
        return frame, notes
    return frames.build(job.job_id, records, job.world_size, newest_run=job.live), notes


def _limits(stages: int) -> tuple[str, ...]:
    """Say what the analyzers of running jobs leave out."""
    if stages == 1:
        return ()
    return (f"ranks are compared inside each of {stages} pipeline stages only",)


def _incidents(frame: StepFrame, job: JobRecords, arranged: Layout) -> Mapping[str, Analyzer]:
    """Judge a trace that says how its ranks work together as a whole.

    Records of running agents are left to the analyzers that were made for these (see above).
    """
    incidents = feed.detect(FrameTable(job.records), arranged).incidents
    found = wordings.findings(frame, incidents, arranged.pipeline)
    return {"data_skew": data_skew.analyze, "incidents": lambda _: found}
