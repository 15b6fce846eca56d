"""`rankscope capture`: saves what is now known of a job in one file, before anybody ends it."""

from __future__ import annotations

import argparse
import sys
import time
from importlib.metadata import version
from pathlib import Path

from rankscope_analyzers.captures import archive, contents, of_kept
from rankscope_analyzers.captures.evidence import CaptureEvidence, EvidenceReader
from rankscope_analyzers.captures.of_kept import CapturedDiagnosis
from rankscope_analyzers.command import InputError, age_seconds, check_folder, print_progress
from rankscope_analyzers.commands import connection
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.intake import agent_evidence, agent_pages, job_objects
from rankscope_analyzers.steps import job_records
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.text.name_lists import shortened
from rankscope_analyzers.text.plain_lines import shown

FAILURES: tuple[type[Exception], ...] = (
    *connection.FAILURES,
    InputError,
    job_records.SourceError,
    RecordError,
)


def run(options: argparse.Namespace) -> int:
    """Query the job's agents and write the capture.

    Raises:
        InputError: there is no such job, or the file cannot be written.
        rankscope_analyzers.intake.cluster.ClusterError: the cluster cannot be queried for its
            agents.
        rankscope_analyzers.steps.job_records.SourceError: nothing can be read.
    """
    _check_can_be_made(options.file)
    targets = connection.chosen_targets(options)
    print_progress(f"Asking {targets.named} for the evidence; a busy one takes up to a minute.")
    agents = targets.agents()
    reader = EvidenceReader(agents, options.job)
    if not options.kept:
        reader.first()
    read = () if options.kept else _of_now(options, targets)
    kept = agent_evidence.kept(agents, options.job)
    parts = () if options.kept else reader.rest()
    objects = None
    if options.cluster and "/" in options.job:
        objects = job_objects.read(options.job, connection.cluster_access(options))
    if isinstance(read, CapturedDiagnosis):
        _write(options.file, read, CaptureEvidence(parts, kept, objects))
        return 0
    found = of_kept.diagnosis(kept, options.job, age_seconds(options.hang_after, "--hang-after"))
    if found is None:
        unread = read or (*agent_evidence.unread(kept), *targets.unlisted)
        agent = "agent that answers" if unread else "agent"
        none = f"there is no job {options.job!r} in what was read, and no {agent} has kept anything"
        raise InputError(shortened([f"{none} about it", *unread]))
    _write(options.file, found, CaptureEvidence(parts, kept, objects))
    return 0


def _check_can_be_made(path: Path) -> None:
    """Refuse a file that exists or cannot be written before a minute is spent on its contents.

    Raises:
        InputError: that is so.
    """
    try:
        exists = path.exists() or path.is_symlink()
    except OSError as error:
        raise InputError(f"the capture cannot be written: {error}") from None
    if exists:
        raise InputError(f"{path} already exists: a capture needs a new file")
    check_folder(path, "the capture")


def _of_now(
    options: argparse.Namespace, targets: connection.Targets
) -> CapturedDiagnosis | tuple[str, ...]:
    """Return the diagnosis of the job in its present state; what was not read if it is unknown."""
    since = time.time() - age_seconds(options.since, "--since")
    hang_after = age_seconds(options.hang_after, "--hang-after")
    try:
        found = gather.of_agents(
            targets.urls,
            options.job,
            since,
            entry=targets.entry,
            cluster=targets.cluster,
            hang_after_seconds=hang_after,
        )
    except job_records.SourceError as error:
        if error.failed:
            raise
        return ()
    timing = diagnose_each(job for job in found.jobs if job.job_id == options.job)
    now = time.time()
    made = job_reports.reports(timing, found.evidence, now, options.job, hang_after)
    report = next((one for one in made if one.job_id == options.job), None)
    if report is None:
        return tuple(found.evidence.missing)
    first = found.poll.pages if found.poll else ()
    again, _ = agent_pages.pages(list(found.poll.agents.values()) if found.poll else [])
    return CapturedDiagnosis(found, report, (*first, *again), now)


def _write(path: Path, found: CapturedDiagnosis, evidence: CaptureEvidence) -> None:
    made = contents.files(
        found.gathered, found.report, found.pages, found.made_unix_seconds, evidence
    )
    about = contents.about(found.report, version("rankscope"), evidence)
    try:
        left_out = archive.write(path, made, about)
    except OSError as error:
        raise InputError(f"the capture cannot be written: {error}") from error
    size = path.stat().st_size
    sys.stdout.write(f"{path}: {len(made) - len(left_out)} files, {size:,} bytes\n")
    sys.stdout.write(f"{shown(made['summary.txt'].decode().rstrip())}\n")
    for line in evidence.not_read():
        sys.stdout.write(f"Not read: {shown(line)}\n")
    if left_out:
        sys.stdout.write(f"Left out because of size: {', '.join(left_out[:8])}\n")
