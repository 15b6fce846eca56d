"""What commands say if no job was read, or not the one that they were asked about."""

from __future__ import annotations

from rankscope_agent.contract.metrics import training
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.text.name_lists import listed

DOCTOR = "rankscope doctor shows what agents do not see"
NO_JOB = f"there is no job in what was read; {DOCTOR}"


def absent_job(wanted: str, gathered: Gathered) -> str:
    """Return that a job was not found, with the jobs that were."""
    infos = gathered.evidence.observed.of(training.RANK_INFO)
    known = {job.job_id for job in gathered.jobs} | {one.labels["job_id"] for one in infos}
    there = f"there are: {listed(sorted(known))}" if known else ""
    return f"there is no job {wanted!r} in what was read; {there or DOCTOR}"
