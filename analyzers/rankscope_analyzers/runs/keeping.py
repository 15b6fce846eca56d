"""Records of running jobs, written while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake.agent_pages import AgentPoll
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.runs import facts as run_facts
from rankscope_analyzers.runs.files import RunRecordFiles
from rankscope_analyzers.runs.record import record


def keep(
    files: RunRecordFiles | None,
    poll: AgentPoll | None,
    reports: Sequence[JobReport],
    now: float,
    log: Callable[[str], None],
) -> list[AnalysisError]:
    """Write the records of runs that are due; return the errors.

    Args:
        files: destination, None for none.
        poll: agents' responses, None if they were not queried.
        reports: of all jobs.
        now: Unix seconds.
        log: called with a message about a record that cannot be written.
    """
    if files is None or poll is None:
        return []
    errors = []
    for job in reports:
        if files.due(job.job_id, now):
            try:
                result = attempt("report", job.job_id, partial(_recorded, poll, job))
                if isinstance(result, AnalysisError):
                    errors.append(result)
                else:
                    files.write(result, now)
            except OSError as error:
                log(f"the record of job {job.job_id!a} cannot be written: {error}")
                break
    return errors


def _recorded(poll: AgentPoll, job: JobReport) -> Mapping[str, Any]:
    return record(job, list(run_facts.facts(poll, job.job_id)))
