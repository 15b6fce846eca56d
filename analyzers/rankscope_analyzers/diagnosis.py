"""From records to verdicts: what `rankscope diagnose` and the demo have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rankscope_analyzers import frames, incident_findings, verdict
from rankscope_analyzers.finding import Analyzer
from rankscope_analyzers.frames import StepFrame
from rankscope_analyzers.registry import ANALYZERS
from rankscope_analyzers.sources import JobRecords
from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.verdict import Verdict


def diagnose(jobs: Iterable[JobRecords]) -> tuple[Verdict, ...]:
    """Return a verdict for each job.

    Raises:
        rankscope_analyzers.frames.RecordError: the records of a job cannot be analysed.
    """
    return tuple(_diagnose(job) for job in jobs)


def _diagnose(job: JobRecords) -> Verdict:
    frame = frames.build(job.job_id, job.records, job.world_size, newest_run=job.live)
    judged = verdict.judge(frame, _analyzers(frame, job))
    return replace(judged, unobserved=(*job.notes, *judged.unobserved))


def _analyzers(frame: StepFrame, job: JobRecords) -> Mapping[str, Analyzer]:
    """Choose by what is known: a trace that says how its ranks work together is judged as a whole.

    Records of running agents, which may be a few seconds of four ranks on a busy machine, are left
    to the analyzers that were made for these.
    """
    if "compute_timing" not in job.meta:
        return ANALYZERS
    layout = feed.layout(job.meta, frame.world_size)
    incidents = feed.detect(feed.columns(job.records, layout.world), layout)
    found = incident_findings.findings(frame, incidents, layout.pipeline)
    return {"incidents": lambda _: found}
