"""Logs jobs as runs of a tracking server while a watch looks at them.

A separate thread sends the requests, so that a server that hangs delays no look; if several looks
wait, only the newest is logged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rankscope_agent.contract.model import Sample
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.tracking.mlflow_api import MlflowApi, RefusedError, TrackingError
from rankscope_analyzers.tracking.run_values import RunValues, of_jobs

EVERY_SECONDS = 60.0
"""Seconds between two values of a run's metric: a job of a month has 43,000 of each."""

OVER_SECONDS = 1800.0
"""Seconds without a report on a job after which its run ends; it may be restarted before."""

RUN_CHARACTERS = 64
"""Limit of a run's identifier in a sentence; MLflow's have 32."""

MOST_REFUSALS = 3
"""Refused requests that are described; the others are counted."""

CLOSING_SECONDS = 15.0
"""Seconds for what waits when the watch ends: a few of the server's responses."""


@dataclass(frozen=True, slots=True)
class _Look:
    now: float
    jobs: Mapping[str, RunValues]


class RunLog:
    """The state of the runs of jobs; sends requests to the server.

    Args:
        api: of the server.
        experiment: name of the experiment that runs are in.
    """

    def __init__(self, api: MlflowApi, experiment: str) -> None:
        self._api, self._name = api, experiment
        self._experiment = ""
        self._runs: dict[str, tuple[str, bool]] = {}
        self._seen: dict[str, float] = {}
        self._unanswered: set[str] = set()

    def write(self, jobs: Mapping[str, RunValues], now: float) -> None:
        """Log jobs, begin runs of new ones and end those of jobs that are gone.

        A request that the server refuses costs only its own job, for which a run is found or begun
        next time. If the server does not answer, no further request is made.

        Args:
            jobs: what there is to log of each.
            now: Unix time.

        Raises:
            TrackingError: the server does not answer, or did not accept all requests.
        """
        if not self._experiment:
            self._experiment = self._api.experiment(self._name)
        if not self._seen or any(job not in self._runs for job in jobs):
            self._runs = self._api.running(self._experiment)
        for job in self._runs:
            self._seen.setdefault(job, now)
        self._seen.update(dict.fromkeys(jobs, now))
        refusals = [*self._log(jobs, now), *self._end(now)]
        if refusals:
            raise TrackingError(_listed(refusals))

    def _log(self, jobs: Mapping[str, RunValues], now: float) -> Iterator[str]:
        """Log jobs, those last that got no answer before; yield what was refused."""
        self._unanswered &= set(jobs)
        for job in sorted(jobs, key=self._unanswered.__contains__):
            self._unanswered.add(job)
            try:
                self._log_one(job, jobs[job], now)
            except RefusedError as error:
                run, _ = self._runs.pop(job, ("", False))
                yield _refusal(job, run, error)
            self._unanswered.discard(job)

    def _log_one(self, job: str, values: RunValues, now: float) -> None:
        if job not in self._runs:
            self._runs[job] = self._api.begin(self._experiment, job, now), True
        self._api.log(self._runs[job][0], values, now)

    def _end(self, now: float) -> Iterator[str]:
        """End runs that the watch began, forget those that jobs began; yield what was refused."""
        for job in [job for job, at in self._seen.items() if now - at > OVER_SECONDS]:
            run, ours = self._runs.get(job, ("", False))
            try:
                if ours:
                    self._api.end(run, now)
            except RefusedError as error:
                yield _refusal(job, run, error)
            self._runs.pop(job, None)
            del self._seen[job]


def _refusal(job: str, run: str, error: RefusedError) -> str:
    named = f"run {visible(run, RUN_CHARACTERS)} of job {job}" if run else f"a run of job {job}"
    return f"{named}: {error}"


def _listed(refusals: Sequence[str]) -> str:
    more = len(refusals) - MOST_REFUSALS
    return "; ".join([*refusals[:MOST_REFUSALS], *([f"and {more} more"] if more > 0 else [])])


class Runs:
    """Hands looks of a watch to the thread that logs them.

    Args:
        runs: logs them.
        say: writes a sentence to the watch's own log.
    """

    def __init__(self, runs: RunLog, say: Callable[[str], None]) -> None:
        self._runs, self._say = runs, say
        self._waiting: _Look | None = None
        self._changed = threading.Condition()
        self._closing = False
        self._newest = 0.0
        self._problem = ""
        self._thread: threading.Thread | None = None

    def look(self, samples: Iterable[Sample], reports: Sequence[JobReport], now: float) -> None:
        """Log a look if the last one is long enough ago, and return at once.

        Args:
            samples: series of the watch.
            reports: of the same look.
            now: Unix time.
        """
        if 0.0 <= now - self._newest < EVERY_SECONDS:
            return
        self._newest = now
        with self._changed:
            self._waiting = _Look(now, of_jobs(samples, reports))
            self._changed.notify()
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
            # At a limit of threads or memory it is tried again at the next look.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def close(self) -> None:
        """Log what waits, for some seconds at most; runs of active jobs stay open."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._closing)
                look, self._waiting = self._waiting, None
            if look is None:
                return
            try:
                self._runs.write(look.jobs, look.now)
                self._note("")
            except TrackingError as error:
                self._note(str(error))

    def _note(self, problem: str) -> None:
        if problem and problem != self._problem:
            self._say(f"MLflow does not take runs: {problem}")
        elif self._problem and not problem:
            self._say("MLflow takes runs again")
        self._problem = problem
