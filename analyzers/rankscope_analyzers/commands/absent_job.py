"""What to say if the job that a command was asked about is not among those that were read."""

from __future__ import annotations

from rankscope_agent.contract.metrics import training
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.text.name_lists import listed


def absent_job(wanted: str, gathered: Gathered) -> str:
    """Return that a job was not found, with the jobs that were."""
    infos = gathered.evidence.observed.of(training.RANK_INFO)
    known = {job.job_id for job in gathered.jobs} | {one.labels["job_id"] for one in infos}
    there = f"there are: {listed(sorted(known))}" if known else ""
    doctor = "rankscope doctor shows what agents do not see"
    return f"there is no job {wanted!r} in what was read; {there or doctor}"
