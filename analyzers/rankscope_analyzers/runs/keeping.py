"""Records of running jobs, written while they run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake.agent_pages import AgentPoll
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.runs import facts as run_facts
from rankscope_analyzers.runs.files import RunRecordFiles
from rankscope_analyzers.runs.record import RankFacts, record


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
    due = [job for job in reports if files.due(job.job_id, now)]
    facts = run_facts.facts(poll, {job.job_id: _nodes(poll, job) for job in due})
    errors = []
    for job in due:
        result = _recorded(job, facts[job.job_id])
        if isinstance(result, AnalysisError):
            errors.append(result)
            continue
        try:
            files.write(result, now)
        except OSError as error:
            log(f"the record of job {job.job_id!a} cannot be written: {error}")
            break
    return errors


def _nodes(poll: AgentPoll, job: JobReport) -> Collection[str]:
    """Return a job's nodes; all if none is known, as of a job whose analysis failed."""
    known = {location.node for location in job.locations.values()}
    return known or poll.agents.keys()


def _recorded(
    job: JobReport, facts: Sequence[RankFacts] | AnalysisError
) -> Mapping[str, Any] | AnalysisError:
    if isinstance(facts, AnalysisError):
        return facts
    return attempt("report", job.job_id, partial(record, job, facts))
