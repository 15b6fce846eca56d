"""The collectors, and the threads and deadlines under which they run.

Each collector has its own thread and runs on a fixed schedule. One that raises, hangs or cannot be
created is reported as failed and only loses its own series.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import cast

from rankscope_agent.collecting.summary.node import NodeSummary
from rankscope_agent.collecting.validation import Validator
from rankscope_agent.contract.model import Sample, Scrape, Snapshot
from rankscope_agent.contract.requirements import remedy_text
from rankscope_agent.contract.sources import COMES_WITH_JOBS, SOURCES, Shared, Source
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import (
    Collector,
    Finishing,
    lacks_source,
    log_failure,
    scrape,
)
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.pods.directory import PodDirectory

log = logging.getLogger(__name__)

CREATE_RETRY_SECONDS = 60.0
"""Pause before another attempt to create a collector: a driver or library that is installed later
is found within the minute, and one that never comes costs next to nothing."""

ABSENT_INTERVALS = 5
"""Number of intervals until a missing source is looked for again: drivers, ports and mounts are set
up with a node. What comes with jobs is looked for in every interval."""


FINISH_SECONDS = 4.0
"""How long the agent's end waits for collectors: a run of the training collector lasts a second at
most, and a write to a slow disk two. Kubernetes kills the agent after 15."""


def all_collectors(
    directory: PodDirectory, windows: FlightWindows
) -> Mapping[str, Callable[[Config], Collector]]:
    """Return the functions that create each collector of the table of sources, by name."""
    shared: Mapping[Shared, object] = {"pods": directory, "windows": windows}
    return {source.name: partial(_create, source, shared) for source in SOURCES}


def _create(source: Source, shared: Mapping[Shared, object], config: Config) -> Collector:
    """Import a source's collector and create it; one that is switched off is never imported."""
    module, _, function = source.create.rpartition(".")
    create = getattr(import_module(module), function)
    return cast("Collector", create(config, *(shared[what] for what in source.shares)))


@dataclass(frozen=True, slots=True)
class CollectorState:
    """The state of one collector.

    Args:
        name: its name in the registry.
        scrape: its newest outcome; None before the first.
        finished_unix_seconds: when its last run ended; None before the first end.
        scheduled: whether its thread is alive, so that further runs will follow.
    """

    name: str
    scrape: Scrape | None
    finished_unix_seconds: float | None
    scheduled: bool


SUMMARY = "summary"
"""The name of the summary among the collectors."""


def next_start(previous: float, interval: float, now: float) -> float:
    """Return the next time on the grid of `previous` that is still to come.

    The grid does not drift with the duration of runs, and runs missed because of a long one are
    skipped, not made up for.
    """
    missed = max(0, int((now - previous) // interval))
    return previous + (missed + 1) * interval


class _Deferred:
    """A collector that is created at its first run, by the thread that runs it."""

    def __init__(self, create: Callable[[], Collector]) -> None:
        self._create = create
        self._made: Collector | None = None

    @property
    def made(self) -> bool:
        """Return True if the collector has been created."""
        return self._made is not None

    @property
    def finishing(self) -> Finishing | None:
        """The collector if it has something to do at the end, None if not or not created."""
        made: object = self._made
        return made if isinstance(made, Finishing) else None

    def collect(self) -> Iterable[Sample]:
        """Create the collector if necessary, and let it collect."""
        if self._made is None:
            self._made = self._create()
        return self._made.collect()


class _Runner:
    """One collector, its thread and its newest outcome."""

    def __init__(
        self,
        name: str,
        create: Callable[[], Collector],
        interval: float,
        deadline: float,
    ) -> None:
        self.name = name
        self.first_run_ended = threading.Event()
        self.finished: float | None = None
        self._collector = _Deferred(create)
        self._interval = interval
        self._deadline = deadline
        self._lock = threading.Lock()
        self._newest: Scrape | None = None
        self._running_since: float | None = None
        self._runs = 0
        self._absent = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, *, once: bool) -> None:
        """Start the thread; with `once` it ends after the first run."""
        target = self._run if once else self._keep_running
        # Counted from here, so that a thread that never gets to run is late as well.
        self._running_since = time.monotonic()
        self._thread = threading.Thread(target=target, name=f"collector-{self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Make the thread end after its current run, without waiting for it."""
        self._stop.set()

    def wait_finished(self, until: float) -> None:
        """Wait for what the collector does at its end, up to a time of the monotonic clock."""
        if self._thread is not None and self._collector.finishing:
            self._thread.join(max(0.0, until - time.monotonic()))

    @property
    def alive(self) -> bool:
        """Return True if the collector's thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def key(self) -> tuple[int, int]:
        """Return a key that changes with `outcome`: ended runs and whole seconds overdue."""
        with self._lock:
            running_seconds = self._running_seconds()
            return self._runs, int(running_seconds) if running_seconds >= self._deadline else -1

    def outcome(self) -> Scrape | None:
        """Return the newest outcome; a run past its deadline already is one, without values."""
        with self._lock:
            running_seconds = self._running_seconds()
            if running_seconds < self._deadline:
                return self._newest
            last_success = self._newest.last_success_unix_seconds if self._newest else None
        failure = (
            f"still running after {running_seconds:.0f} s, its deadline is {self._deadline:g} s"
        )
        return Scrape(self.name, False, running_seconds, (), failure, last_success)

    def log_if_overdue(self) -> None:
        """Log a run that has passed its deadline and is still running."""
        with self._lock:
            overdue = self._running_seconds() >= self._deadline
        outcome = self.outcome() if overdue else None
        if outcome is not None and outcome.failure:
            log_failure(self.name, outcome.failure)

    def wait_first(self) -> None:
        """Wait until the first run has ended or has passed its deadline."""
        since = self._running_since
        left = 0.0 if since is None else since + self._deadline - time.monotonic()
        self.first_run_ended.wait(max(0.0, left))

    def _running_seconds(self) -> float:
        """Return the duration of the current run in seconds; -1 between runs."""
        return -1.0 if self._running_since is None else time.monotonic() - self._running_since

    def _keep_running(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            pause = self.run_and_pause()
            due = next_start(due, pause, time.monotonic())
            self._stop.wait(max(0.0, due - time.monotonic()))
        if finishing := self._collector.finishing:
            finishing.finish()

    def run_and_pause(self) -> float:
        """Run once; return the seconds from the start of that run to the start of the next."""
        self._run()
        self._note_absence()
        if not self._collector.made:
            return CREATE_RETRY_SECONDS
        rare = self._absent and self.name not in COMES_WITH_JOBS
        return self._interval * (ABSENT_INTERVALS if rare else 1)

    def _run(self) -> None:
        with self._lock:
            if self._running_since is None:  # the first run counts from the thread's start
                self._running_since = time.monotonic()
            last_success = self._newest.last_success_unix_seconds if self._newest else None
        done = scrape(self.name, self._collector, last_success)
        if done.duration_seconds >= self._deadline:
            done = self._too_late(done, last_success)
        with self._lock:
            self._newest = done
            self.finished = time.time()
            self._running_since = None
            self._runs += 1
        self.first_run_ended.set()

    def _note_absence(self) -> None:
        """Log a missing source once, with what would provide it, and again if it disappears."""
        failure = self._newest.failure if self._newest else ""
        absent = lacks_source(failure)
        if absent and not self._absent:
            log.info("collector %s: %s%s", self.name, failure, remedy_text(self.name, failure))
        self._absent = absent

    def _too_late(self, done: Scrape, last_success: float | None) -> Scrape:
        """Convert the outcome of a run that missed its deadline to a failure without values."""
        took = f"took {done.duration_seconds:.1f} s, its deadline is {self._deadline:g} s"
        failure = f"{took}; then {done.failure}" if done.failure else took
        log_failure(self.name, failure)
        return Scrape(self.name, False, done.duration_seconds, (), failure, last_success)


class _Over:
    """The summary of some outcomes, as a collector."""

    def __init__(self, summary: NodeSummary, outcomes: Sequence[Scrape]) -> None:
        self._summary = summary
        self._outcomes = outcomes

    def collect(self) -> Iterable[Sample]:
        """Yield the summary."""
        return self._summary.collect(self._outcomes, time.monotonic())


class Registry:
    """The enabled collectors at work, and their newest combined snapshot.

    Args:
        node: this node's name.
        creators: functions that create the collectors, each called at its first run.
        interval_seconds: time between two runs of a collector.
        deadline_seconds: a run that lasts longer has failed.
        simulated: describes the node if it is simulated; empty for a real one.
        summary: summarises each snapshot; None for no summary.
    """

    def __init__(
        self,
        node: str,
        creators: Mapping[str, Callable[[], Collector]],
        interval_seconds: float,
        deadline_seconds: float,
        simulated: str = "",
        summary: NodeSummary | None = None,
    ) -> None:
        self._summary = summary
        self._summed_up: float | None = None
        self._node = node
        self._simulated = simulated
        self._runners = tuple(
            _Runner(name, create, interval_seconds, deadline_seconds)
            for name, create in creators.items()
        )
        self._validator = Validator()
        self._lock = threading.Lock()
        self._key: tuple[tuple[int, int], ...] | None = None
        self._snapshot = Snapshot(node, time.time(), (), simulated)

    def start(self) -> None:
        """Start the collectors' schedules."""
        for runner in self._runners:
            runner.start(once=False)

    def run_once(self) -> Snapshot:
        """Run every collector once, each up to its deadline, and return the snapshot."""
        for runner in self._runners:
            runner.start(once=True)
        for runner in self._runners:
            while runner.outcome() is None:
                runner.wait_first()
        return self.snapshot()

    def stop(self) -> None:
        """End the schedules, and wait a moment for collectors that have something to do then.

        A run that lasts longer is abandoned along with its thread.
        """
        for runner in self._runners:
            runner.stop()
        until = time.monotonic() + FINISH_SECONDS
        for runner in self._runners:
            runner.wait_finished(until)

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot, which is the same object until something changes.

        A collector without an outcome yet is not part of it.
        """
        with self._lock:
            key = tuple(runner.key() for runner in self._runners)
            if key != self._key:
                outcomes = self._validated_outcomes()
                self._snapshot = Snapshot(self._node, time.time(), outcomes, self._simulated)
                self._key = key
            return self._snapshot

    def _validated_outcomes(self) -> tuple[Scrape, ...]:
        found = [runner.outcome() for runner in self._runners]
        outcomes = [outcome for outcome in found if outcome is not None]
        if self._summary is not None:
            summary = scrape(SUMMARY, _Over(self._summary, outcomes), self._summed_up)
            self._summed_up = summary.last_success_unix_seconds
            outcomes.append(summary)
        validated = self._validator.validate(outcomes)
        for outcome in validated:
            if outcome.invalid:
                log_failure(
                    outcome.collector, outcome.invalid_reason, what="yields invalid samples"
                )
        return validated

    def states(self) -> tuple[CollectorState, ...]:
        """Describe every collector, with its outcome in the snapshot."""
        validated = {scrape.collector: scrape for scrape in self.snapshot().scrapes}
        return tuple(
            CollectorState(runner.name, validated.get(runner.name), runner.finished, runner.alive)
            for runner in self._runners
        )

    @property
    def alive(self) -> bool:
        """Return True if every collector's thread is alive; this costs nothing."""
        return all(runner.alive for runner in self._runners)

    def log_overdue(self) -> None:
        """Log the runs that have passed their deadline and are still running."""
        for runner in self._runners:
            runner.log_if_overdue()


def create_registry(
    config: Config, collectors: Mapping[str, Callable[[Config], Collector]]
) -> Registry:
    """Return a registry of the enabled collectors, none of which has been created yet."""

    def bind(create: Callable[[Config], Collector]) -> Callable[[], Collector]:
        return lambda: create(config)

    creators = {name: bind(collectors[name]) for name in config.collectors}
    return Registry(
        config.node_name,
        creators,
        config.interval_seconds,
        config.deadline_seconds,
        config.simulate.text if config.simulate else "",
        NodeSummary(),
    )
