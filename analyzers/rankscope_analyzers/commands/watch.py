"""`rankscope watch`: diagnose repeatedly and export the findings to Prometheus."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from rankscope_agent.contract.canary import is_canary
from rankscope_agent.contract.metrics import watch as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.web.memory_arenas import limit_arenas
from rankscope_analyzers.captures.kept import captures_of
from rankscope_analyzers.command import InputError, age_seconds, print_progress
from rankscope_analyzers.commands import (
    connection,
    watch_files,
    watch_setup,
    watch_shards,
    watch_streaming,
)
from rankscope_analyzers.commands.config_option import configured
from rankscope_analyzers.commands.job_source import READS, Exported, JobSource
from rankscope_analyzers.commands.job_source import log as _log
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.fusion.gather import EarlierPolls, Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake.cluster import ClusterError, NodeAgents, trusted_agents
from rankscope_analyzers.intake.credentials import CredentialsError, entry_of
from rankscope_analyzers.intake.known_agents import KnownAgents
from rankscope_analyzers.intake.prometheus_api import Prometheus
from rankscope_analyzers.isolation.boundary import AnalysisError, ErrorLog, attempt
from rankscope_analyzers.runs.keeping import keep
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.tracing import traces
from rankscope_analyzers.watch import cluster_jobs, step_series
from rankscope_analyzers.watch import server as watch_server
from rankscope_analyzers.watch.cluster_jobs import ClusterJobs
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.goodput import KEPT_AS, Goodput
from rankscope_analyzers.watch.incident_log import ANNOUNCED
from rankscope_analyzers.watch.leadership import Leadership
from rankscope_analyzers.watch.memory import Memory, NoWatch
from rankscope_analyzers.watch.process_starts import process_starts

FAILURES: tuple[type[Exception], ...] = (InputError, CredentialsError, ClusterError)

STANDBY_SECONDS = 1.0
"""Seconds between two checks of which watch leads."""

LONGEST_SECONDS = 900.0
"""Seconds after which an evaluation counts as hanging: the first one of 2,048 nodes takes less than
two minutes, and all its requests are answered or time out within one."""

NO_WATCH = NoWatch()


def run(options: argparse.Namespace) -> int:
    """Serve and evaluate until interrupted.

    Raises:
        InputError: an option cannot be used, or the address is taken.
        rankscope_analyzers.intake.cluster.ClusterError: there is no cluster to query at the start.
    """
    interval = age_seconds(options.interval, "--interval")
    watch_files.check(options)
    listen, guard = watch_server.listen_settings(options)
    source, leadership = _source(options, interval)
    exporter = FindingsExporter(leadership, partial(_sums, source), source.shard)
    log = ErrorLog(_log)
    first_look = f"The first look judges the last {options.since}: up to a minute for long jobs."
    if options.once:
        print_progress(first_look)
        evaluate(source, exporter, log)
        source.memory.save(exporter, source.followed)
        source.close_exporters()
        sys.stdout.write(exporter.text())
        return 1 if exporter.failed or _is_blind(source.exported) else 0
    server = watch_server.start(exporter, listen, guard)
    _log(f"listening on {server.url}/metrics")
    print_progress(first_look)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as a container's first process, too
    cycle = watch_streaming.cycle_of(options, source, exporter, log, evaluate, _log)
    try:
        while True:
            if cycle is None or not leadership.held():
                if cycle is not None:
                    cycle.stand_by()
                run_cycle(source, exporter, leadership, interval, log)
            else:
                cycle.run()
    except KeyboardInterrupt:
        if leadership.held():
            source.memory.save(exporter, source.followed)
            source.sums.save(NO_WATCH, None)
        source.close_exporters()
        leadership.close()
        return 0


def _is_blind(exported: Exported) -> bool:
    """Return True, and say why, if there is no verdict and step records could not be read."""
    if not exported.unread or any(one.verdict is not None for one in exported.reports):
        return False
    _log(f"nothing could be judged: {'; '.join(exported.unread)}")
    return True


def _source(options: argparse.Namespace, interval: float) -> tuple[JobSource, Leadership]:
    """Return the source of jobs with what is saved and announced of them, and who leads."""
    records = watch_setup.records(options)
    followed = FollowedJobs()
    known = configured(options)
    hang_after = watch_setup.hang_after_seconds(options, known)
    limit_arenas()
    api = watch_setup.api(options)
    looked_at = watch_setup.cluster_jobs(api, options, _log, known)
    announcer = watch_setup.announcer(options, _log)
    nodes = watch_setup.publisher(options, _log)
    read = reader(options, interval)
    leadership = watch_setup.leadership(options, _log)
    memory = Memory(
        watch_setup.store(options, api, leadership),
        _log,
        {
            **({cluster_jobs.KEPT_AS: looked_at} if looked_at else {}),
            **({ANNOUNCED: announcer.log} if announcer.log else {}),
            **({watch_setup.WEBHOOK: announcer.webhook} if announcer.webhook else {}),
        },
    )
    source = JobSource(read, records, followed, memory, hang_after, looked_at)
    source.announcer, source.nodes = announcer, nodes
    source.shard = watch_shards.shard_of(options)
    waiting = looked_at.waiting if looked_at else frozenset
    source.goodput = Goodput(hang_after, waiting, known, _log)
    source.traces = watch_setup.tracing(options)
    source.tracking = watch_setup.tracking(options, _log)
    source.sums = Memory(
        watch_setup.sums_store(options, api, leadership),
        _log,
        {KEPT_AS: source.goodput, **({traces.KEPT_AS: source.traces} if source.traces else {})},
    )
    access = connection.cluster_access(options) if options.cluster else None
    source.captures = captures_of(options, access)
    return source, leadership


def run_cycle(
    source: JobSource,
    exporter: FindingsExporter,
    leadership: Leadership,
    interval: float,
    log: ErrorLog,
) -> None:
    """Evaluate if this watch leads, then wait for the next cycle."""
    began = time.monotonic()
    exporter.set_deadline(interval + LONGEST_SECONDS)
    if leadership.held():
        evaluate(source, exporter, log)
        time.sleep(max(1.0, began + interval - time.monotonic()))
    else:
        exporter.stand_by()
        source.stand_by()
        time.sleep(STANDBY_SECONDS)


def reader(options: argparse.Namespace, interval: float) -> Callable[[], Gathered]:
    """Return a function that reads all jobs in their present state.

    Args:
        options: of the command.
        interval: seconds between two readings.

    Raises:
        InputError: an option cannot be used.
    """
    length = age_seconds(options.since, "--since")
    entry = entry_of(options)
    if options.prometheus:
        server = Prometheus(options.prometheus, entry)

        def of_prometheus() -> Gathered:
            now = time.time()
            return gather.of_prometheus(server, None, now - length, now, READS)

        return of_prometheus

    earlier = EarlierPolls(interval * watch_streaming.COMPARISON_SHARE, READS)

    def of_agents(urls: Sequence[str], cluster: NodeAgents | None = None) -> Gathered:
        since = time.time() - length
        return gather.of_agents(urls, None, since, entry, earlier, cluster)

    if not options.cluster:
        return partial(of_agents, options.agent)
    vouched = entry.scheme == "https" or not entry.shows
    access = connection.cluster_access(options)
    ask = partial(trusted_agents, options.namespace, entry, access=access)
    known = KnownAgents(ask, vouched)
    return partial(_of_cluster, known, of_agents)


def _of_cluster(
    known: KnownAgents, read: Callable[[Sequence[str], NodeAgents], Gathered]
) -> Gathered:
    """Read from the cluster's agents; if the list of agents is out of date, reports say so."""
    agents = known.now()
    answered: Sequence[str] = ()
    try:
        gathered = read(list(agents.addresses.values()), agents.addresses)
        answered = [agent.url for agent in gathered.poll.agents.values()] if gathered.poll else ()
    finally:
        known.note_answers(answered)
    if not agents.stale:
        return gathered
    _log(agents.stale)
    notes = (agents.stale, *gathered.evidence.notes)
    return replace(gathered, evidence=replace(gathered.evidence, notes=notes))


def evaluate(source: JobSource, exporter: FindingsExporter, log: ErrorLog) -> None:
    """Read, diagnose and export once; errors are logged and counted.

    Nothing that agents, jobs or files contain prevents the next evaluation.
    """
    source.memory.begin(exporter, source.followed)
    source.sums.begin(NO_WATCH, None)
    result = attempt("look", "", partial(_evaluated, source, exporter))
    if isinstance(result, AnalysisError):
        _log(f"nothing could be judged: {result}")
        exporter.fail()
        result = [result]
    result += _looked(source)
    errors = dict.fromkeys(result)  # an error that several reports name counts once
    exporter.note_errors(errors)
    log.note(errors)
    changed = bool(exporter.events) or _counted(source.cluster_jobs)
    # Announced before it is saved: saved changes are not announced again.
    source.tell(exporter, time.time())
    kept = source.memory.end(exporter, source.followed, changed=changed)
    if kept and source.cluster_jobs is not None:
        source.cluster_jobs.announce()
    if source.sums.end(NO_WATCH, None, changed=True):
        source.goodput.announce()
        if source.tracking:
            source.tracking.look(source.goodput.samples(), source.exported.reports, time.time())


def _looked(source: JobSource) -> list[AnalysisError]:
    """Look at the cluster's jobs, once their saved state is known; return the errors."""
    if source.cluster_jobs is None or not source.memory.loaded:
        return []
    error = attempt("look", "", partial(source.cluster_jobs.look, time.time()))
    return [error] if isinstance(error, AnalysisError) else []


def _counted(found: ClusterJobs | None) -> bool:
    return found is not None and found.counted


def _evaluated(source: JobSource, exporter: FindingsExporter) -> list[AnalysisError]:
    """Evaluate; return the errors of single agents and jobs."""
    began = time.monotonic()
    try:
        gathered = source.own(source.read())
    except (SourceError, ClusterError) as error:
        _log(f"nothing could be read: {error}")
        exporter.fail()
        return list(error.errors) if isinstance(error, SourceError) else []
    if source.cluster_jobs is not None:
        source.cluster_jobs.note_starts(process_starts(gathered.evidence.observed))
    timing = diagnose_each(gathered.jobs, source.timing or source.followed)
    for job, why in timing.unusable.items():
        _log(visible(f"job {job}: {why}"))
    now = time.time()
    made = job_reports.reports(
        timing,
        gathered.evidence,
        now,
        hang_after_seconds=source.hang_after_seconds,
        shard=source.shard,
    )
    reports = source.canaries.take(made, now)
    extra = [
        metrics.WATCH_EVALUATION.sample(time.monotonic() - began),
        metrics.WATCH_AGENTS.sample(gathered.silent, state="silent"),
        metrics.WATCH_AGENTS.sample(_answering(gathered), state="answering"),
    ]
    kept = tuple(report.without_steps() for report in reports)
    source.exported = Exported(kept, extra, tuple(gathered.evidence.missing))
    unusable = sum(not is_canary(job) for job in timing.unusable)
    answered = gathered.poll.agents if gathered.poll else ()
    unexported = exporter.update(source.exported.reports, now, unusable, extra, answered)
    if source.nodes and exporter.is_leader:
        source.nodes.publish(reports, now)
    broken = {error.about for error in (*timing.errors, *unexported)}
    whole = [report for report in reports if report.job_id not in broken]
    spent = source.goodput.look(gathered, whole, now) if source.sums.loaded else []
    if source.traces and source.sums.loaded:
        spent += source.traces.look(gathered, whole, now)
    unkept = keep(source.records, gathered.poll, reports, now, _log)
    if source.captures:
        source.captures.keep(gathered, reports, now, _log)
    return [*gathered.errors, *_report_errors(reports), *unexported, *spent, *unkept]


def _sums(source: JobSource) -> Iterator[Sample]:
    """Yield the sums over jobs, and the state of jobs in the cluster."""
    yield from source.canaries.samples()
    if source.step_look is not None:
        yield from step_series.samples(source.step_look, source.shard)
    yield from source.goodput.samples()
    if source.cluster_jobs is not None and source.shard.index == 0:  # all of them count all jobs
        yield from source.cluster_jobs.samples()


def _report_errors(reports: Sequence[JobReport]) -> Iterator[AnalysisError]:
    return (error for report in reports for error in report.errors)


def _answering(gathered: Gathered) -> int:
    return len(gathered.poll.agents if gathered.poll else gathered.evidence.observed.nodes)
