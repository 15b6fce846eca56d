"""The results of the cluster's jobs, each end counted once: sums that outlive a watch. Pure.

An end counts once by the job's uid, whatever source it is read from and however often. Jobs that
had ended before anything watched are known, and do not count. A job that was active when last seen
and no longer exists was cancelled if its end was seen, else it is unobserved.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rankscope_agent.contract.metrics.job_starts import PROCESS_PHASES
from rankscope_analyzers.command import age_seconds
from rankscope_analyzers.configuration.values import TIMES_TO_COMPLETE
from rankscope_analyzers.intake.object_watch import Gone
from rankscope_analyzers.watch.histogram import Histogram
from rankscope_analyzers.watch.process_starts import ProcessStart
from rankscope_analyzers.workloads.jobs import SERIES, Job
from rankscope_analyzers.workloads.state import Outcome, WorkloadState

ENDS_KEPT = 4096
"""Ends that are remembered individually, of 50 bytes each; all earlier ones are taken as
counted."""

MOST_CLASSES = 16
MOST_NAMESPACES = 256
OTHER = "other"
"""Classes and namespaces with separate sums; further ones are counted together."""

DURATION_BOUNDS = (60.0, 600, 3600, 14400, 43200, 86400, 259200, 604800, 2592000)
STARTUP_BOUNDS = (1.0, 5, 15, 60, 300, 900, 3600, 14400, 86400)

CLOCKS_SECONDS = 5.0
"""Tolerance between clocks of nodes and of the API server, and between agents' reports of one
start."""

Key = tuple[str, str, str, str]
"""Namespace, class, outcome and cause."""


@dataclass(frozen=True, slots=True)
class Open:
    """A job that has not ended.

    Args:
        kind: of its object.
        namespace: of the job.
        job_class: of the job.
        counted_start: creation of the newest of the pods whose start was counted last.
        counted_processes: start of the newest of the processes whose start was counted last.
    """

    kind: str
    namespace: str
    job_class: str
    counted_start: float = 0.0
    counted_processes: float = 0.0


@dataclass
class Completions:
    """The sums, and what is needed to count nothing twice.

    Args:
        began: Unix time of the first look; None before it.
        ends: Unix time of each end that was counted or known, by uid, in the order of counting.
        forgotten: ends up to this time that are not in `ends` were counted, too.
        open: jobs that were active at the last look, by uid.
        totals: ends by namespace, class, outcome and cause.
        objectives: within which jobs should succeed, by class; "" for all other classes.
        late: jobs by class that succeeded later than that.
    """

    began: float | None = None
    ends: dict[str, float] = field(default_factory=dict)
    forgotten: float = 0.0
    open: dict[str, Open] = field(default_factory=dict)
    totals: dict[Key, int] = field(default_factory=dict)
    durations: dict[str, Histogram] = field(default_factory=dict)
    startups: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    objectives: Mapping[str, str] = field(default_factory=lambda: TIMES_TO_COMPLETE)
    late: Counter[str] = field(default_factory=Counter)

    def look(
        self,
        jobs: Sequence[Job],
        gone: Iterable[Gone[WorkloadState]],
        present: Iterable[str],
        followed: frozenset[str],
        now: float,
    ) -> bool:
        """Count what ended since the last look.

        Args:
            jobs: all jobs of the cluster.
            gone: objects that were deleted since the last look.
            present: uids of all objects, also of those that are parts of jobs.
            followed: kinds of which all objects are known.
            now: Unix time.

        Returns:
            True if an end was counted.
        """
        first, self.began = self.began is None, now if self.began is None else self.began
        before = sum(self.totals.values())
        for job in jobs:
            if job.top.kind == SERIES:
                continue
            if job.top.ended:
                self._end(job.top, job.cause, count=not first)
            else:
                self._go_on(job)
        for one in gone:
            self._went(one, now)
        self._missing({*present}, followed, now)
        self._forget()
        return sum(self.totals.values()) != before

    def _go_on(self, job: Job) -> None:
        top = job.top
        known = self.open.get(top.uid)
        if known is None:
            known = Open(top.kind, self._namespace(top.namespace), self._class(top.job_class))
            for outcome in ("succeeded", "failed"):
                self.totals.setdefault((known.namespace, known.job_class, outcome, ""), 0)
        self.open[top.uid] = self._started(known, job)

    def _started(self, known: Open, job: Job) -> Open:
        """Count the start of a job's pods if all of them are newer than those counted last."""
        oldest = job.oldest_pod
        if "image" not in job.startup or oldest is None or oldest <= known.counted_start:
            return known
        for phase, seconds in job.startup.items():
            if phase == "queue" and known.counted_start:
                continue
            key = known.job_class, phase
            self.startups.setdefault(key, Histogram(STARTUP_BOUNDS)).add(seconds)
        return replace(known, counted_start=job.newest_pod or oldest)

    def processes_started(self, job: Job, start: ProcessStart) -> None:
        """Count the start of a job's processes if all of them are newer than those counted last.

        Agents keep reporting a job of the same name for some minutes after its end.
        """
        known = self.open.get(job.top.uid)
        born = max(known.counted_processes, job.top.created or 0.0) if known else math.inf
        skew = CLOCKS_SECONDS if known and known.counted_processes else -CLOCKS_SECONDS
        if known is None or start.earliest <= born + skew:
            return
        for phase in PROCESS_PHASES:
            if phase in start.phases:
                key = known.job_class, phase
                self.startups.setdefault(key, Histogram(STARTUP_BOUNDS)).add(start.phases[phase])
        self.open[job.top.uid] = replace(known, counted_processes=start.newest)

    def _end(self, top: WorkloadState, cause: str, *, count: bool) -> None:
        known = self.open.pop(top.uid, None)
        progress = top.progress
        ended = progress.ended or 0.0
        if top.uid in self.ends or (known is None and 0 < ended <= self.forgotten):
            return
        self.ends[top.uid] = ended
        if count:
            self._add(top, progress.outcome, cause if progress.outcome == "failed" else "")

    def _went(self, one: Gone[WorkloadState], now: float) -> None:
        top, known = one.value, self.open.pop(one.value.uid, None)
        # An owned object that was never seen as a separate job is a part of another.
        part = known is None and top.owner is not None and top.owner.kind != SERIES
        if part or top.uid in self.ends or not _counts(top.kind):
            return
        if top.ended:
            self._end(top, top.progress.cause, count=True)
            return
        self.ends[top.uid] = now
        self._add(top, "cancelled" if one.seen else "unobserved", "")

    def _missing(self, present: set[str], followed: frozenset[str], now: float) -> None:
        """Count jobs that were active when the previous watch saw them last, and are gone."""
        for uid, known in list(self.open.items()):
            if uid not in present and known.kind in followed:
                del self.open[uid]
                self.ends[uid] = now
                self._count((known.namespace, known.job_class, "unobserved", ""))

    def _add(self, top: WorkloadState, outcome: Outcome, cause: str) -> None:
        job_class = self._class(top.job_class)
        self._count((self._namespace(top.namespace), job_class, outcome, cause))
        ended = top.progress.ended
        if outcome == "succeeded" and ended is not None and top.created is not None:
            self._succeeded(top.job_class, job_class, max(0.0, ended - top.created))

    def _succeeded(self, own_class: str, job_class: str, seconds: float) -> None:
        """Count how long a job took, and whether its own class allows that.

        Args:
            own_class: of the job.
            job_class: with which it is counted.
            seconds: from its creation to its end.
        """
        self.durations.setdefault(job_class, Histogram(DURATION_BOUNDS)).add(seconds)
        objective = self.objectives.get(own_class, self.objectives[""])
        self.late[job_class] += seconds > age_seconds(objective, "a time to complete")

    def _count(self, key: Key) -> None:
        self.totals[key] = self.totals.get(key, 0) + 1

    def _class(self, name: str) -> str:
        known = {key[1] for key in self.totals}
        return name if name in known or len(known) < MOST_CLASSES else OTHER

    def _namespace(self, name: str) -> str:
        known = {key[0] for key in self.totals}
        return name if name in known or len(known) < MOST_NAMESPACES else OTHER

    def _forget(self) -> None:
        while len(self.ends) > ENDS_KEPT:
            uid = next(iter(self.ends))
            self.forgotten = max(self.forgotten, self.ends.pop(uid))

    def kept(self) -> dict[str, Any]:
        """Return all state to save, in JSON-ready form."""
        return {
            "began": self.began,
            "ends": self.ends,
            "forgotten": self.forgotten,
            "open": [
                [uid, one.kind, one.namespace, one.job_class, one.counted_start]
                for uid, one in self.open.items()
            ],
            "processes": {uid: one.counted_processes for uid, one in self.open.items()},
            "totals": [[*key, count] for key, count in self.totals.items()],
            "durations": {name: one.kept() for name, one in self.durations.items()},
            "late": dict(self.late),
            "startups": [[*key, one.kept()] for key, one in self.startups.items()],
        }


def restored(kept: Any, objectives: Mapping[str, str] = TIMES_TO_COMPLETE) -> Completions:
    """Return saved sums.

    Args:
        kept: of an earlier watch; older ones did not count late jobs.
        objectives: for jobs that end from now on.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: they are invalid.
    """
    processes = kept.get("processes", {})
    return Completions(
        began=None if kept["began"] is None else float(kept["began"]),
        ends={str(uid): float(at) for uid, at in kept["ends"].items()},
        forgotten=float(kept["forgotten"]),
        open={
            str(uid): Open(
                str(kind),
                str(namespace),
                str(job_class),
                float(start),
                float(processes.get(uid, 0.0)),
            )
            for uid, kind, namespace, job_class, start in kept["open"]
        },
        totals=_totals(kept["totals"]),
        durations={
            str(name): Histogram.of(one, DURATION_BOUNDS) for name, one in kept["durations"].items()
        },
        startups={
            (str(name), str(phase)): Histogram.of(one, STARTUP_BOUNDS)
            for name, phase, one in kept["startups"]
        },
        objectives=objectives,
        late=Counter({str(name): _number(one) for name, one in kept.get("late", {}).items()}),
    )


def _number(count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(f"{count!r} is not a number of ends")
    return count


def _totals(kept: Any) -> dict[Key, int]:
    found: dict[Key, int] = defaultdict(int)
    for namespace, job_class, outcome, cause, count in kept:
        found[str(namespace), str(job_class), str(outcome), str(cause)] += _number(count)
    return dict(found)


def _counts(kind: str) -> bool:
    return kind not in {SERIES, "Workload", "PodGroup"}
