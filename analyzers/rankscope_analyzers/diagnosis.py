"""From records to verdicts: what `rankscope diagnose` and the demo have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rankscope_analyzers import frames, incident_findings, verdict
from rankscope_analyzers.finding import Analyzer
from rankscope_analyzers.frames import StepFrame
from rankscope_analyzers.record_tables import FrameTable
from rankscope_analyzers.registry import ANALYZERS
from rankscope_analyzers.sources import JobRecords
from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.stragglers.layout import layout
from rankscope_analyzers.verdict import Verdict


def diagnose(jobs: Iterable[JobRecords]) -> tuple[Verdict, ...]:
    """Return a verdict for each job.

    Raises:
        rankscope_analyzers.step_records.RecordError: the records of a job cannot be analysed.
    """
    return tuple(_diagnose(job) for job in jobs)


def _diagnose(job: JobRecords) -> Verdict:
    frame = frames.build(job.job_id, job.records, job.world_size, newest_run=job.live)
    analyzers = _analyzers(frame, job)
    judged = verdict.judge(frame, analyzers)
    limits = _limits(frame) if analyzers is ANALYZERS else ()
    return replace(judged, unobserved=(*job.notes, *limits, *judged.unobserved))


def _limits(frame: StepFrame) -> tuple[str, ...]:
    """Say what the analyzers of running jobs leave out."""
    stages = len(set(frame.stages.tolist()))
    if stages == 1:
        return ()
    return (f"ranks are compared inside each of {stages} pipeline stages only",)


def _analyzers(frame: StepFrame, job: JobRecords) -> Mapping[str, Analyzer]:
    """Choose by what is known: a trace that says how its ranks work together is judged as a whole.

    Records of running agents, which may be a few seconds of four ranks on a busy machine, are left
    to the analyzers that were made for these.
    """
    if "compute_timing" not in job.meta:
        return ANALYZERS
    arranged = layout(job.meta, frame.world_size)
    incidents = feed.detect(FrameTable(job.records), arranged).incidents
    found = incident_findings.findings(frame, incidents, arranged.pipeline)
    return {"incidents": lambda _: found}
