"""`rankscope watch`: diagnose repeatedly and export the findings to Prometheus."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rankscope_agent.contract.metrics import watch as metrics
from rankscope_analyzers.command import InputError, age_seconds
from rankscope_analyzers.commands import connection
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.fusion.gather import Earlier, Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake.agent_pages import Look
from rankscope_analyzers.intake.cluster import ClusterError, NodeAgents, trusted_agents
from rankscope_analyzers.intake.credentials import CredentialsError, entry_of
from rankscope_analyzers.intake.known_agents import KnownAgents
from rankscope_analyzers.intake.prometheus_api import Prometheus
from rankscope_analyzers.isolation.boundary import AnalysisError, ErrorLog, attempt
from rankscope_analyzers.runs import facts as run_facts
from rankscope_analyzers.runs.files import RunRecordFiles
from rankscope_analyzers.runs.record import record
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.watch import server as watch_server
from rankscope_analyzers.watch.exporter import Exported
from rankscope_analyzers.watch.leadership import Alone, Leadership, Lease
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.store import FileStore

FAILURES: tuple[type[Exception], ...] = (InputError, CredentialsError, ClusterError)

DEFAULT_INTERVAL = "30s"

STAND_BY_SECONDS = 1.0
"""Pause between two looks at who is to evaluate."""

LONGEST_SECONDS = 900.0
"""Time after which an evaluation is taken to hang: the first one of 2,048 nodes takes less than two
minutes, and all that it asks answers or is given up within one."""

COMPARING_SHARE = 0.15
"""Part of the interval that may go into comparing collectives; there is all the rest to do, too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare whom to watch and where to serve what is found."""
    connection.add_arguments(parser, prometheus=True)
    parser.add_argument(
        "--lease",
        metavar="NAME",
        help="with --cluster and --namespace: of several watches the one that holds this Lease"
        " evaluates, the others stand by",
    )
    parser.add_argument(
        "--interval",
        default=DEFAULT_INTERVAL,
        metavar="AGE",
        help="time between evaluations (default %(default)s)",
    )
    parser.add_argument(
        "--since",
        default="30m",
        metavar="AGE",
        help="how far back each evaluation looks (default %(default)s)",
    )
    watch_server.add_arguments(parser)
    parser.add_argument(
        "--records",
        type=Path,
        metavar="DIR",
        help="keep a record of each run in DIR, for rankscope diff (agents only)",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="keep what is known of jobs and incidents in FILE, so that a watch that is started"
        " anew goes on where the last one ended",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="evaluate once, print the series and exit: with 1 if nothing could be read",
    )


@dataclass(slots=True)
class Sight:
    """The jobs as they are now, read from wherever the options say.

    Args:
        read: reads them. Raises SourceError where nothing can be read, and ClusterError where the
            agents of the cluster are not known.
        records: where records of runs are kept, None if they are not.
        followed: what is known of jobs from look to look; None where looks show other records of
            the same time, as Prometheus' means over intervals are.
        memory: keeps all that over restarts.
    """

    read: Callable[[], Gathered]
    records: RunRecordFiles | None = None
    followed: FollowedJobs | None = field(default_factory=FollowedJobs)
    memory: Memory = field(default_factory=lambda: Memory(None, _say))


def run(options: argparse.Namespace) -> int:
    """Serve and evaluate until interrupted.

    Raises:
        InputError: an option cannot be used, or the address is taken.
        rankscope_analyzers.intake.cluster.ClusterError: there is no cluster to ask at the start.
    """
    interval = age_seconds(options.interval)
    listen, guard = watch_server.place(options)
    records = RunRecordFiles(options.records) if options.records else None
    followed = None if options.prometheus else FollowedJobs()
    memory = Memory(FileStore(options.state) if options.state else None, _say)
    sight = Sight(reader(options, interval), records, followed, memory)
    leadership = _leadership(options)
    exported = Exported(leadership)
    log = ErrorLog(_say)
    if options.once:
        evaluate(sight, exported, log)
        memory.save(exported, followed)
        sys.stdout.write(exported.text())
        return 1 if exported.failed else 0
    server = watch_server.start(exported, listen, guard)
    _say(f"listening on {server.url}/metrics")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as a container's first process, too
    try:
        while True:
            turn(sight, exported, leadership, interval, log)
    except KeyboardInterrupt:
        if leadership.held():
            memory.save(exported, followed)
        leadership.close()
        return 0


def turn(
    sight: Sight, exported: Exported, leadership: Leadership, interval: float, log: ErrorLog
) -> None:
    """Evaluate if it is this watch's turn, and wait for the next time."""
    began = time.monotonic()
    exported.expect(interval + LONGEST_SECONDS)
    if leadership.held():
        evaluate(sight, exported, log)
        time.sleep(max(1.0, began + interval - time.monotonic()))
    else:
        exported.stand_by()
        sight.memory.forget()
        time.sleep(STAND_BY_SECONDS)


def _leadership(options: argparse.Namespace) -> Leadership:
    if options.lease is None:
        return Alone()
    if not (options.cluster and options.namespace) or options.once:
        raise InputError("--lease goes with --cluster and --namespace, where the lease is to be")
    return Lease(options.lease, options.namespace, _say)


def reader(options: argparse.Namespace, interval: float) -> Callable[[], Gathered]:
    """Return what reads all jobs as they are when it is called.

    Args:
        options: of the command.
        interval: seconds between two readings.

    Raises:
        InputError: an option cannot be used.
    """
    length = age_seconds(options.since)
    entry = entry_of(options)
    if options.prometheus:
        server = Prometheus(options.prometheus, entry)

        def of_prometheus() -> Gathered:
            now = time.time()
            return gather.of_prometheus(server, None, now - length, now)

        return of_prometheus

    earlier = Earlier(patience_seconds=interval * COMPARING_SHARE)

    def of_agents(urls: Sequence[str], cluster: NodeAgents | None = None) -> Gathered:
        since = time.time() - length
        return gather.of_agents(urls, None, since, entry, earlier, cluster)

    if not options.cluster:
        return partial(of_agents, options.agent)
    vouched = entry.scheme == "https" or not entry.shows
    known = KnownAgents(partial(trusted_agents, options.namespace, entry), vouched)
    return partial(_of_cluster, known, of_agents)


def _of_cluster(
    known: KnownAgents, read: Callable[[Sequence[str], NodeAgents], Gathered]
) -> Gathered:
    """Read what the cluster's agents say; where these are not as of now, every report says so."""
    agents = known.now()
    answered: Sequence[str] = ()
    try:
        found = read(list(agents.addresses.values()), agents.addresses)
        answered = [agent.url for agent in found.look.agents.values()] if found.look else ()
    finally:
        known.note_answers(answered)
    if not agents.stale:
        return found
    _say(agents.stale)
    notes = (agents.stale, *found.evidence.notes)
    return replace(found, evidence=replace(found.evidence, notes=notes))


def evaluate(sight: Sight, exported: Exported, log: ErrorLog) -> None:
    """Read, judge and export once; what cannot be read or raises is said and counted.

    It ends nothing: whatever agents, jobs or files hold, the next evaluation comes.
    """
    sight.memory.begin(exported, sight.followed)
    made = attempt("look", "", partial(_evaluated, sight, exported))
    if isinstance(made, AnalysisError):
        _say(f"nothing could be judged: {made}")
        exported.fail()
        made = [made]
    # An error that every job's report names is one all the same.
    errors = dict.fromkeys(made)
    exported.note_errors(errors)
    log.note(errors)
    changed = bool(exported.news)
    sight.memory.end(exported, sight.followed, changed=changed)
    for event in exported.news:
        _say(visible(f"job {event.job_id}: {event.said}"))


def _evaluated(sight: Sight, exported: Exported) -> list[AnalysisError]:
    """Evaluate; return the errors that cost single agents and jobs something."""
    began = time.monotonic()
    try:
        found = sight.read()
    except (SourceError, ClusterError) as error:
        _say(f"nothing could be read: {error}")
        exported.fail()
        return list(error.errors) if isinstance(error, SourceError) else []
    timing = diagnose_each(found.jobs, sight.followed)
    for job, why in timing.unusable.items():
        _say(visible(f"job {job}: {why}"))
    now = time.time()
    reports = job_reports.reports(timing, found.evidence, now)
    more = [
        metrics.WATCH_EVALUATION.sample(time.monotonic() - began),
        metrics.WATCH_AGENTS.sample(found.silent, state="silent"),
        metrics.WATCH_AGENTS.sample(_answering(found), state="answering"),
    ]
    unexported = exported.update(reports, now, len(timing.unusable), more)
    unkept = _keep_records(sight.records, found.look, reports, now)
    return [*found.errors, *_of_reports(reports), *unexported, *unkept]


def _of_reports(reports: Sequence[JobReport]) -> Iterator[AnalysisError]:
    return (error for report in reports for error in report.errors)


def _answering(found: Gathered) -> int:
    return len(found.look.agents if found.look else found.evidence.observed.nodes)


def _keep_records(
    files: RunRecordFiles | None, look: Look | None, reports: Sequence[JobReport], now: float
) -> list[AnalysisError]:
    """Write the records of runs that are due; return what raised on the way."""
    if files is None or look is None:
        return []
    errors = []
    for job in reports:
        if files.due(job.job_id, now):
            try:
                made = attempt("report", job.job_id, partial(_recorded, look, job))
                if isinstance(made, AnalysisError):
                    errors.append(made)
                else:
                    files.write(made, now)
            except OSError as error:
                _say(f"the record of job {job.job_id!a} cannot be written: {error}")
                break
    return errors


def _recorded(look: Look, job: JobReport) -> Mapping[str, Any]:
    return record(job, list(run_facts.facts(look, job.job_id)))


def _say(text: str) -> None:
    sys.stderr.write(f"rankscope watch: {text}\n")
    sys.stderr.flush()
