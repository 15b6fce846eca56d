"""How `rankscope watch` follows steps between evaluations: changes are announced at once.

New steps are requested every few seconds. Pages of agents, which show all else, take a hundred
times as long to read; another thread requests them at a slower pace, and each time that it is done
all jobs are evaluated. In between only those whose incidents changed are evaluated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from rankscope_analyzers.command import age_seconds
from rankscope_analyzers.commands import connection
from rankscope_analyzers.commands.job_source import READS, Exported, JobSource
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.fusion.gather import EarlierPolls, Gathered, PageLook
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.streamed_fleet import StreamedFleet
from rankscope_analyzers.intake.cluster import NodeAgents, trusted_agents
from rankscope_analyzers.intake.credentials import CredentialsError, Entry, entry_of
from rankscope_analyzers.intake.known_agents import KnownAgents
from rankscope_analyzers.isolation.boundary import AnalysisError, ErrorLog, attempt
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.step_series import StepLook

COMPARISON_SHARE = 0.15
"""Fraction of the interval that may be spent on comparing collectives."""

EVIDENCE_SHARE = 0.2
"""Fraction of the time that evaluations of all jobs may take; those of a large fleet are rarer."""

PUNCTUAL_SECONDS = 2.0
"""Seconds to wait for agents that answered in time before; the others delay no records."""

NEWCOMER_SECONDS = 1.0
"""The same while agents wait to be queried for the first time: each look has some that hang."""

SLICE_SECONDS = 0.1
"""Seconds between two checks whether pages have arrived."""

CYCLE_SECONDS = 900.0
"""Seconds after which a look counts as hanging."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents to query.

    Args:
        urls: of all agents.
        cluster: the same agents as the API server lists them, None if they were given.
        stale: a sentence on their age and the reason, empty if they are current.
    """

    urls: Sequence[str]
    cluster: NodeAgents | None = None
    stale: str = ""


class AgentPages:
    """Fetches agents' pages in a separate thread.

    Args:
        agents: returns the agents to query, given those of the last ones that answered. Raises
            ClusterError if that is unknown.
        entry: credentials.
        seconds: how far back pages are kept.
        interval: seconds between two evaluations.
    """

    def __init__(
        self,
        agents: Callable[[Sequence[str]], Agents],
        entry: Entry,
        seconds: float,
        interval: float,
    ) -> None:
        self._agents = agents
        self._entry = entry
        self._seconds = seconds
        self._earlier = EarlierPolls(interval * COMPARISON_SHARE, READS)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pages")
        self._future: Future[tuple[PageLook, float]] | None = None
        self._interval = interval
        self._due = self._asked_at = 0.0
        self._answered: Sequence[str] = ()
        self.agents = Agents(())
        self.cpu_seconds = 0.0

    def poll(self) -> Callable[[], PageLook] | None:
        """Start a fetch if it is due; return a function for the pages once they have arrived.

        It raises SourceError if no agent answered, ClusterError if there are none.
        """
        if self._future is None:
            if time.monotonic() >= self._due:
                self._asked_at = time.monotonic()
                self._future = self._pool.submit(self._asked)
            return None
        if not self._future.done():
            return None
        done, self._future = self._future, None
        self._due = self._asked_at + self._interval
        return partial(self._pages, done)

    @property
    def ready(self) -> bool:
        """Return True if pages were requested and have arrived."""
        return self._future is not None and self._future.done()

    def postpone(self, cpu_seconds: float) -> None:
        """Postpone the next look at pages by what the last one, and its evaluation, took."""
        took = self.cpu_seconds + cpu_seconds
        self._due = self._asked_at + max(self._interval, took / EVIDENCE_SHARE)

    def forget(self) -> None:
        """Discard pages that were requested and not taken: later they would count as new ones."""
        if self._future is not None:
            self._future.cancel()
        self._future, self._due = None, 0.0

    def _pages(self, done: Future[tuple[PageLook, float]]) -> PageLook:
        look, self.cpu_seconds = done.result()
        return look

    def _asked(self) -> tuple[PageLook, float]:
        began = time.thread_time()
        self.agents = self._agents(self._answered)
        since = time.time() - self._seconds
        look = gather.pages_of_agents(
            self.agents.urls, since, self._entry, self._earlier, self.agents.cluster
        )
        self._answered = [agent.url for agent in look.poll.agents.values()]
        return look, time.thread_time() - began + look.asking_cpu_seconds


class StreamingCycle:
    """The work of the watch while it leads.

    Args:
        source: what is kept of jobs; it is read through here.
        exporter: gets the reports.
        log: of errors.
        evaluate: evaluates all jobs.
        say: writes a sentence to the watch's own log.
        pages: of agents.
        fleet: creates an empty fleet.
        step_interval: seconds between two looks for steps.
    """

    def __init__(
        self,
        source: JobSource,
        exporter: FindingsExporter,
        log: ErrorLog,
        evaluate: Callable[[JobSource, FindingsExporter, ErrorLog], None],
        say: Say,
        pages: AgentPages,
        fleet: Callable[[], StreamedFleet],
        step_interval: float,
    ) -> None:
        self._source, self._exporter, self._errors = source, exporter, log
        self._evaluate, self._say = evaluate, say
        self._pages = pages
        self._made = fleet
        self._read = source.read
        self._fleet: StreamedFleet | None = None
        self._look: PageLook | None = None
        self._interval = step_interval
        self._stale = self._problem = ""
        self._listed: Agents | None = None

    def run(self) -> None:
        """Look once for new steps, announce what changed, and wait for the next look."""
        began = time.monotonic()
        self._exporter.set_deadline(self._interval + CYCLE_SECONDS)
        if self._fleet is None:
            self._fleet = self._made()
        fleet = self._fleet
        self._source.timing = fleet.timing
        self._source.memory.begin(self._exporter, self._source.followed)
        looked = attempt("look", "", partial(self._looked, fleet))
        if isinstance(looked, AnalysisError):
            self._note([looked])
        changed = () if isinstance(looked, AnalysisError) else looked
        pages = self._pages.poll()
        if pages is not None:
            self._evaluate_all(fleet, pages)
        else:
            if changed and self._look is not None:
                self._evaluate_some(fleet, self._look, changed)
            events = bool(changed) and bool(self._exporter.events)
            self._source.memory.end(self._exporter, self._source.followed, changed=events)
        self._wait(fleet, began + self._interval)

    def _wait(self, fleet: StreamedFleet, until: float) -> None:
        """Wait for the next look: until then, or until pages have arrived that can be judged."""
        connections = fleet.stream.connections
        connections.idle(SLICE_SECONDS)
        while time.monotonic() < until and not (fleet.stream.has_newcomers or self._pages.ready):
            connections.idle(min(SLICE_SECONDS, until - time.monotonic()))

    def stand_by(self) -> None:
        """Discard what was followed: another watch leads."""
        if self._fleet is not None:
            self._fleet.stream.connections.close()
        self._pages.forget()
        self._source.read, self._source.timing, self._source.step_look = self._read, None, None
        self._fleet = self._look = self._listed = None

    def _looked(self, fleet: StreamedFleet) -> Sequence[str]:
        """Request new steps; return the jobs with something to report."""
        agents = self._pages.agents
        if agents.stale and agents.stale != self._stale:
            self._say(agents.stale)
        self._stale = agents.stale
        if agents is not self._listed:
            self._listed = agents
            fleet.set_agents(agents.urls, agents.cluster)
        now, began = time.time(), time.monotonic()
        try:
            reading = fleet.stream.has_newcomers
            found = fleet.look(now, NEWCOMER_SECONDS if reading else PUNCTUAL_SECONDS)
        except CredentialsError as error:
            if str(error) != self._problem:
                self._say(f"steps cannot be fetched: {error}")
            self._problem = str(error)
            return ()
        self._problem = ""
        news = fleet.news(now)
        self._note_look(fleet, now if found.answered else None, time.monotonic() - began)
        self._exporter.with_watch(lambda series: series.confirm(news.unchanged, now))
        self._note([*found.errors, *news.errors])
        return news.changed

    def _note_look(self, fleet: StreamedFleet, answered_at: float | None, seconds: float) -> None:
        """Record a look for the series; Unix time, None if no agent answered it."""
        before = self._source.step_look
        at = before.answered_at if answered_at is None and before else answered_at
        stream = fleet.stream
        self._source.step_look = StepLook(at, seconds, stream.health, stream.records, fleet.dropped)

    def _evaluate_all(self, fleet: StreamedFleet, pages: Callable[[], PageLook]) -> None:
        began = time.thread_time()

        def read() -> Gathered:
            self._look = pages()
            return fleet.gathered(self._look, time.time() - fleet.seconds, None)

        self._source.read = read
        self._evaluate(self._source, self._exporter, self._errors)
        self._pages.postpone(time.thread_time() - began)

    def _evaluate_some(self, fleet: StreamedFleet, look: PageLook, names: Sequence[str]) -> None:
        """Replace the reports of some jobs; those of the others remain.

        If that raises, they all remain until the next evaluation.
        """
        errors = attempt("look", "", partial(self._evaluated, fleet, look, names))
        self._note([errors] if isinstance(errors, AnalysisError) else errors)

    def _evaluated(
        self, fleet: StreamedFleet, look: PageLook, names: Sequence[str]
    ) -> Sequence[AnalysisError]:
        """Evaluate some jobs, announce what changed; return the errors of single ones."""
        made = self._reports(fleet, look, names)
        now = time.time()
        # After a failed evaluation it is unknown whether what it did not see still holds.
        known = Exported() if self._exporter.failed else self._source.exported
        reports = {report.job_id: report for report in known.reports}
        others = self._source.canaries.take(made, now)
        reports |= {report.job_id: report.without_steps() for report in others}
        exported = Exported(tuple(reports.values()), known.extra)
        unexported = self._exporter.update(exported.reports, now, 0, exported.extra, None)
        self._source.exported = exported
        self._source.tell(self._exporter, now)
        return [*unexported, *(error for report in made for error in report.errors)]

    def _reports(
        self, fleet: StreamedFleet, look: PageLook, names: Sequence[str]
    ) -> list[JobReport]:
        gathered = fleet.gathered(look, time.time() - fleet.seconds, names)
        timing = diagnose_each(gathered.jobs, fleet.timing)
        made = job_reports.reports(
            timing,
            gathered.evidence,
            time.time(),
            hang_after_seconds=self._source.hang_after_seconds,
        )
        return [report for report in made if report.job_id in names]

    def _note(self, errors: Sequence[AnalysisError]) -> None:
        if errors:
            once = dict.fromkeys(errors)
            self._exporter.note_errors(once)
            self._errors.note(once)


def cycle_of(
    options: argparse.Namespace,
    source: JobSource,
    exporter: FindingsExporter,
    log: ErrorLog,
    evaluate: Callable[[JobSource, FindingsExporter, ErrorLog], None],
    say: Say,
) -> StreamingCycle | None:
    """Return the cycle that follows steps, None if steps are only requested at evaluations.

    Raises:
        InputError: an option cannot be used.
    """
    step_interval = age_seconds(options.step_interval, "--step-interval")
    if options.prometheus or not step_interval:
        return None
    interval = age_seconds(options.interval, "--interval")
    seconds = age_seconds(options.since, "--since")
    step_interval = min(step_interval, interval)
    entry = entry_of(options)
    pages = AgentPages(_agents(options, entry), entry, seconds, interval)
    followed = source.followed or FollowedJobs()
    vouched = entry.scheme == "https" or not entry.shows
    cautious = bool(options.cluster) and not vouched
    comparison = interval * COMPARISON_SHARE
    fleet = partial(
        StreamedFleet, entry, seconds, comparison, followed, cautious=cautious, shard=source.shard
    )
    return StreamingCycle(source, exporter, log, evaluate, say, pages, fleet, step_interval)


def _agents(options: argparse.Namespace, entry: Entry) -> Callable[[Sequence[str]], Agents]:
    """Return a function that returns the agents to query, given who of the last ones answered."""
    if not options.cluster:
        given = Agents(tuple(options.agent))
        return lambda _: given
    access = connection.cluster_access(options)
    vouched = entry.scheme == "https" or not entry.shows
    known = KnownAgents(partial(trusted_agents, options.namespace, entry, access=access), vouched)

    def now(answered: Sequence[str]) -> Agents:
        known.note_answers(answered)
        found = known.now()
        return Agents(tuple(found.addresses.values()), found.addresses, found.stale)

    return now
