"""What was read of one job, without the data of others on the same nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.intake.observed import gathered as put_together

_JOB = re.compile(r'[{,]job_id="((?:[^"\\]|\\.)*)"')


def of_job(found: Gathered, job_id: str) -> Gathered:
    """Return what was read about a job: its records, its ranks, and the series of its nodes.

    A series that names another job is left out, as is a node on which no series names this one.
    """
    evidence = found.evidence
    seen = evidence.observed
    nodes = {one.node for one in seen.all() if one.labels.get("job_id") == job_id}
    kept = replace(
        evidence,
        observed=put_together(_series(seen.on(nodes), job_id), seen.source),
        findings=tuple(one for one in evidence.findings if one.job_id == job_id),
        clocks_ahead={node: by for node, by in evidence.clocks_ahead.items() if node in nodes},
        of_jobs={job: notes for job, notes in evidence.of_jobs.items() if job == job_id},
        stalls={job: known for job, known in evidence.stalls.items() if job == job_id},
    )
    jobs = tuple(job for job in found.jobs if job.job_id == job_id)
    return replace(found, jobs=jobs, evidence=kept)


def _series(seen: Observed, job_id: str) -> Iterator[Series]:
    return (one for one in seen.all() if one.labels.get("job_id", job_id) == job_id)


def page_of_job(text: str, job_id: str) -> str:
    """Return an agent's page without the lines that name another job."""
    return "".join(line for line in text.splitlines(keepends=True) if _is_of(line, job_id))


def _is_of(line: str, job_id: str) -> bool:
    found = None if line.startswith("#") else _JOB.search(line)
    return found is None or found[1] == job_id
