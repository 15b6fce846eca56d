"""`rankscope record`: record a run, so that later runs can be compared with it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from rankscope_analyzers.command import (
    STANDARD_OUTPUT,
    InputError,
    age_seconds,
    check_text,
    print_progress,
    print_remark,
    write_text,
)
from rankscope_analyzers.commands import connection
from rankscope_analyzers.commands.absent_job import NO_JOB
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.intake.agent_pages import AgentPoll
from rankscope_analyzers.isolation.boundary import AnalysisError
from rankscope_analyzers.runs import facts as run_facts
from rankscope_analyzers.runs.record import RankFacts, record
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.text import finite_json

FAILURES: tuple[type[Exception], ...] = (
    *connection.FAILURES,
    InputError,
    SourceError,
    RecordError,
)


def run(options: argparse.Namespace) -> int:
    """Write the record of a run.

    Raises:
        InputError: there is no such job, or several, or nothing is known of it, or the file cannot
            be written.
        SourceError: no agent answers.
        RecordError: the job's records are invalid.
    """
    since = time.time() - age_seconds(options.since, "--since")
    if options.file != STANDARD_OUTPUT:
        check_text(options.file)
    targets = connection.chosen_targets(options)
    print_progress(f"Asking {targets.named} for the run; a busy one takes up to a minute.")
    found = gather.of_agents(
        targets.urls, options.job, since, entry=targets.entry, cluster=targets.cluster
    )
    timing = diagnose_each(job for job in found.jobs if options.job in {None, job.job_id})
    jobs = job_reports.reports(timing, found.evidence, time.time())
    chosen = [job for job in jobs if options.job in {None, job.job_id}]
    if len(chosen) != 1:
        refused = "".join(f"; {sentence}" for sentence in found.evidence.missing)
        raise InputError(f"{_not_one(options.job, [job.job_id for job in jobs])}{refused}")
    facts_of_ranks = _facts(found.poll, chosen[0].job_id) if found.poll else ()
    if not facts_of_ranks and chosen[0].verdict is None:
        why = "; ".join(chosen[0].unobserved) or "agents report nothing about its ranks"
        raise InputError(f"there is nothing to record about job {chosen[0].job_id}: {why}")
    for sentence in chosen[0].missing:
        print_remark(f"Not read: {sentence}")
    text = finite_json.text(record(chosen[0], facts_of_ranks), indent=1) + "\n"
    if options.file == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        write_text(options.file, text)
    return 0


def _not_one(wanted: str | None, known: Sequence[str]) -> str:
    """Return why no job was chosen."""
    if not known:
        return NO_JOB
    there = f"there are: {', '.join(known)}"
    if wanted is not None:
        return f"there is no job {wanted!r} in what was read; {there}"
    return f"one job is recorded at a time; {there} (choose with --job)"


def _facts(poll: AgentPoll, job_id: str) -> Sequence[RankFacts]:
    found = run_facts.facts(poll, {job_id: poll.agents})[job_id]
    if isinstance(found, AnalysisError):
        raise InputError(f"job {job_id} cannot be recorded: {found}")
    return found
