"""From records to verdicts: what `rankscope diagnose` and the demo have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rankscope_analyzers import frames, verdict
from rankscope_analyzers.registry import ANALYZERS
from rankscope_analyzers.sources import JobRecords
from rankscope_analyzers.verdict import Verdict


def diagnose(jobs: Iterable[JobRecords]) -> tuple[Verdict, ...]:
    """Return a verdict for each job.

    Raises:
        rankscope_analyzers.frames.RecordError: the records of a job cannot be analysed.
    """
    return tuple(_diagnose(job) for job in jobs)


def _diagnose(job: JobRecords) -> Verdict:
    frame = frames.build(job.job_id, job.records, job.world_size, newest_run=job.live)
    judged = verdict.judge(frame, ANALYZERS)
    return replace(judged, unobserved=(*job.notes, *judged.unobserved))
