"""The life of incidents: opened, changed, over, back; from the reports of one look after another.

An incident is the same one as long as step times show the same class of fault; where they show
nothing, as long as its cause is of the same kind. What a look could not see ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.text.wording import clock

Change = Literal["opened", "culprit changed", "cause changed", "over", "back"]

REMEMBERED_SECONDS = 86400.0
"""An incident that was over for a day and begins anew is another one."""

LIVES_OF_A_JOB = 32
"""Incidents of a job that are remembered; those that were seen last, if there are more."""

MOST_JOBS = 4096
"""Jobs of which incidents are remembered; the longest gone are forgotten first."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change in the life of an incident.

    Args:
        kind: of its cause.
        said: a sentence.
    """

    job_id: str
    kind: str
    change: Change
    said: str


@dataclass(frozen=True, slots=True)
class Life:
    """What is remembered of one incident.

    Args:
        kind: of its cause, as last seen.
        ranks: its culprits, as last seen.
        summary: what was last said of it.
        over: Unix time at which it was over, None while it goes on.
    """

    kind: str
    ranks: tuple[int, ...]
    summary: str
    over: float | None = None


class Lives:
    """The incidents of all jobs; bounded."""

    __slots__ = ("_jobs",)

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, Life]] = {}

    def take(self, report: JobReport, now: float) -> tuple[Event, ...]:
        """Take the report of a job; return what changed.

        Args:
            report: of the newest evaluation.
            now: Unix time of that.
        """
        lives = dict(self._jobs.get(report.job_id, {}))
        events = (*_of_running(lives, report), *_of_gone(lives, report, now))
        self._jobs.pop(report.job_id, None)
        self._jobs[report.job_id] = _remembered(lives, now)
        while len(self._jobs) > MOST_JOBS:
            del self._jobs[next(iter(self._jobs))]
        return events

    def kept(self) -> dict[str, Any]:
        """Return what is remembered, as JSON can hold it."""
        return {
            job_id: {key: [one.kind, one.ranks, one.summary, one.over] for key, one in own.items()}
            for job_id, own in self._jobs.items()
        }

    @classmethod
    def of(cls, kept: Any) -> Lives:
        """Return incidents that remember what others kept.

        Raises:
            TypeError, ValueError, AttributeError: it is no such thing.
        """
        made = cls()
        for job_id, own in list(kept.items())[-MOST_JOBS:]:
            known = list(own.items())[-LIVES_OF_A_JOB:]
            made._jobs[str(job_id)] = {str(key): _life(*one) for key, one in known}
        return made

    def recovered(self) -> Iterator[tuple[str, str, float]]:
        """Yield job, kind and time of what is over; of several of one kind, of the last one."""
        for job_id, lives in self._jobs.items():
            going = {one.kind for one in lives.values() if one.over is None}
            ended: dict[str, float] = {}
            for one in lives.values():
                if one.over is not None and one.kind not in going:
                    ended[one.kind] = max(one.over, ended.get(one.kind, one.over))
            yield from ((job_id, kind, at) for kind, at in ended.items())


def _life(kind: str, ranks: Sequence[int], summary: str, over: float | None) -> Life:
    known = None if over is None else float(over)
    return Life(str(kind), tuple(int(rank) for rank in ranks), str(summary), known)


def running(report: JobReport) -> list[Incident]:
    """Return the incidents of a job that go on."""
    return [one for one in report.incidents if one.until_unix_seconds is None]


def _key(incident: Incident) -> str:
    return incident.timing.kind if incident.timing else incident.cause.kind


def _of_running(lives: dict[str, Life], report: JobReport) -> Iterator[Event]:
    seen: set[str] = set()
    for incident in running(report):
        key, kind = _key(incident), incident.cause.kind
        if key in seen:
            continue
        seen.add(key)
        before = lives.pop(key, None)
        now = Life(kind, incident.where.ranks, incident.summary)
        lives[key] = now  # behind those that were seen earlier
        if change := _change(before, now):
            yield Event(report.job_id, kind, change, f"{change}: {incident.summary}")


def _change(before: Life | None, now: Life) -> Change | None:
    if before is None:
        return "opened"
    if before.over is not None:
        return "back"
    if before.ranks and now.ranks and set(before.ranks).isdisjoint(now.ranks):
        return "culprit changed"
    return "cause changed" if before.kind != now.kind else None


def _of_gone(lives: dict[str, Life], report: JobReport, now: float) -> Iterator[Event]:
    """Tell what goes on no more, if it could have been seen."""
    if report.missing or report.verdict is None or not report.verdict.confidence:
        return
    going = {_key(one) for one in running(report)}
    for key, life in list(lives.items()):
        if life.over is None and key not in going:
            ends = [one.until_unix_seconds for one in report.incidents if _key(one) == key]
            over = max((end for end in ends if end is not None), default=now)
            lives[key] = replace(life, over=over)
            said = f"over, recovered at {clock(over)}: {life.summary}"
            yield Event(report.job_id, life.kind, "over", said)


def _remembered(lives: dict[str, Life], now: float) -> dict[str, Life]:
    kept = [
        (key, life)
        for key, life in lives.items()
        if life.over is None or now - life.over < REMEMBERED_SECONDS
    ]
    return dict(kept[-LIVES_OF_A_JOB:])
