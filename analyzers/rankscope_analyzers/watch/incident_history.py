"""The history of incidents: opened, changed, over, back; from the reports of successive polls.

An incident stays the same as long as step times show the same class of fault, or without step times
as long as its cause is of the same kind. A poll that could not see a job ends no incident; those of
a job that is gone are closed, as it will never be seen how they ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.steps.records import MAXIMUM_RANK
from rankscope_analyzers.text.wording import clock

Change = Literal["opened", "culprit changed", "cause changed", "over", "back", "gone"]

GONE = "closed because the job is gone, not because the fault ended"
"""Says so of an incident whose job is gone."""

REMEMBERED_SECONDS = 86400.0
"""An incident that returns after more than a day is a new one."""

STATES_OF_A_JOB = 32
"""Incidents of a job that are remembered; if there are more, those that were seen last."""

MAXIMUM_JOBS = 4096
"""Jobs whose incidents are remembered; those that ended first are dropped first."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change of an incident.

    Args:
        kind: of its cause.
        sentence: describes the change.
        key: identity of the incident while it lasts.
        ranks: its culprits.
        incident: its current state, None if the report no longer has it.
    """

    job_id: str
    kind: str
    change: Change
    sentence: str
    key: str = ""
    ranks: tuple[int, ...] = ()
    incident: Incident | None = None


@dataclass(frozen=True, slots=True)
class IncidentState:
    """The last known state of an incident.

    Args:
        kind: of its cause, as last seen.
        ranks: its culprits, as last seen.
        summary: its last summary.
        over: Unix time at which it was over, None while it is open.
    """

    kind: str
    ranks: tuple[int, ...]
    summary: str
    ended_at: float | None = None


class IncidentHistory:
    """Remembers the incidents of all jobs; bounded memory."""

    __slots__ = ("_jobs",)

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, IncidentState]] = {}

    def update(self, report: JobReport, now: float) -> tuple[Event, ...]:
        """Process the report of a job; return the changes.

        Args:
            report: of the newest evaluation.
            now: Unix time of the evaluation.
        """
        states = dict(self._jobs.get(report.job_id, {}))
        begun = tuple(_running_events(states, report))
        events = (*begun, *_ended_events(states, report, now, begun))
        self._jobs.pop(report.job_id, None)
        if kept := _kept(states, now):
            self._jobs[report.job_id] = kept
        return events

    def trim(self) -> None:
        """Drop the jobs that are too many, after all of an evaluation were updated.

        One too many would otherwise cost each job its history in turn.
        """
        for job_id in list(self._jobs)[: max(0, len(self._jobs) - MAXIMUM_JOBS)]:
            del self._jobs[job_id]

    def close(self, present: Collection[str], is_gone: Callable[[str], bool]) -> tuple[Event, ...]:
        """Close the open incidents of jobs that are gone; return the changes.

        Args:
            present: the jobs of the newest evaluation.
            is_gone: returns True for a job that is gone.
        """
        absent = [
            job_id
            for job_id, states in self._jobs.items()
            if job_id not in present and any(one.ended_at is None for one in states.values())
        ]
        gone = filter(is_gone, absent)
        return tuple(event for job_id in gone for event in self._closed(job_id))

    def _closed(self, job_id: str) -> Iterator[Event]:
        states = self._jobs.pop(job_id)
        if ended := {key: one for key, one in states.items() if one.ended_at is not None}:
            self._jobs[job_id] = ended
        for key, one in states.items():
            if one.ended_at is None:
                yield Event(job_id, one.kind, "gone", f"{GONE}: {one.summary}", key, one.ranks)

    def jobs(self) -> Iterator[str]:
        """Yield the jobs whose incidents are remembered."""
        yield from self._jobs

    def kept(self) -> dict[str, Any]:
        """Return the state in JSON-ready form."""
        return {
            job_id: {
                key: [one.kind, spans_of(one.ranks), one.summary, one.ended_at]
                for key, one in own.items()
            }
            for job_id, own in self._jobs.items()
        }

    @classmethod
    def of(cls, kept: Any) -> IncidentHistory:
        """Return a history from its saved state.

        Raises:
            TypeError, ValueError, AttributeError: it is invalid.
        """
        made = cls()
        for job_id, own in list(kept.items())[-MAXIMUM_JOBS:]:
            known = list(own.items())[-STATES_OF_A_JOB:]
            made._jobs[str(job_id)] = {str(key): _state_of(*one) for key, one in known}
        return made

    def recovered(self) -> Iterator[tuple[str, str, float]]:
        """Yield job, kind and end of incidents that are over; of several of one kind the last."""
        for job_id, states in self._jobs.items():
            active = {one.kind for one in states.values() if one.ended_at is None}
            ended: dict[str, float] = {}
            for one in states.values():
                if one.ended_at is not None and one.kind not in active:
                    ended[one.kind] = max(one.ended_at, ended.get(one.kind, one.ended_at))
            yield from ((job_id, kind, at) for kind, at in ended.items())


def _state_of(
    kind: str, ranks: Sequence[Any], summary: str, ended_at: float | None
) -> IncidentState:
    known = None if ended_at is None else float(ended_at)
    return IncidentState(str(kind), ranks_of(ranks), str(summary), known)


def spans_of(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last rank of each run of ranks: a job's list takes 100 kB."""
    spans: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if spans and spans[-1][1] == rank - 1:
            spans[-1] = spans[-1][0], rank
        else:
            spans.append((rank, rank))
    return spans


def ranks_of(spans: Sequence[Any]) -> tuple[int, ...]:
    """Return ranks from saved runs of ranks, or from a list.

    Raises:
        TypeError, ValueError: they are invalid.
    """
    ranks: list[int] = []
    for one in spans:
        first, last = (one, one) if isinstance(one, int) else map(int, one)
        if not 0 <= first <= last <= MAXIMUM_RANK:
            raise ValueError(f"{one!r} are not ranks")
        ranks.extend(range(first, last + 1))
    return tuple(ranks)


def running(report: JobReport) -> list[Incident]:
    """Return the active incidents of a job."""
    return [one for one in report.incidents if one.until_unix_seconds is None]


def could_see_ends(report: JobReport) -> bool:
    """Return True if an incident that is missing from a report is over."""
    return not report.missing and report.verdict is not None and report.verdict.confidence > 0


def key_of(incident: Incident) -> str:
    """Return the identity of an incident while it lasts, whatever its cause is found to be."""
    return incident.timing.kind if incident.timing else incident.cause.kind


def _running_events(states: dict[str, IncidentState], report: JobReport) -> Iterator[Event]:
    seen: set[str] = set()
    for incident in running(report):
        key, kind = key_of(incident), incident.cause.kind
        if key in seen:
            continue
        seen.add(key)
        before = states.pop(key, None)
        now = IncidentState(kind, incident.where.ranks, incident.summary)
        states[key] = now  # after those that were seen earlier
        if change := _change(before, now):
            sentence = f"{change}: {incident.summary}"
            yield Event(report.job_id, kind, change, sentence, key, now.ranks, incident)


def _change(before: IncidentState | None, now: IncidentState) -> Change | None:
    if before is None:
        return "opened"
    if before.ended_at is not None:
        return "back"
    if before.ranks and now.ranks and set(before.ranks).isdisjoint(now.ranks):
        return "culprit changed"
    return "cause changed" if before.kind != now.kind else None


def _ended_events(
    states: dict[str, IncidentState], report: JobReport, now: float, begun: Sequence[Event]
) -> Iterator[Event]:
    """Yield the incidents that are over, if they could have been seen.

    Args:
        states: of the job's incidents, which change.
        report: of the newest evaluation.
        now: Unix time of the evaluation.
        begun: what it showed of running incidents.
    """
    active = {key_of(one) for one in running(report)}
    with_job = {key_of(one) for one in report.incidents if one.ended_with_job}
    over = report.over
    # That a job is over was seen, whatever else was not.
    if over is None and not could_see_ends(report):
        return
    known_end = None if over is None else over.since_unix_seconds
    for key, state in list(states.items()):
        if state.ended_at is None and key not in active:
            seen = [one for one in report.incidents if key_of(one) == key]
            ends = [one.until_unix_seconds for one in seen]
            ended_at = max((end for end in ends if end is not None), default=known_end or now)
            states[key] = replace(state, ended_at=ended_at)
            last = seen[-1] if seen else None
            why = "the job ended" if key in with_job or (over and not seen) else ""
            why = why or _replaced(state, begun) or "recovered"
            sentence = f"over, {why} at {clock(ended_at)}: {state.summary}"
            yield Event(report.job_id, state.kind, "over", sentence, key, state.ranks, last)


def _replaced(ended: IncidentState, begun: Sequence[Event]) -> str:
    """Return what took the place of an incident that ended: its ranks are still slow."""
    same = (
        one.kind
        for one in begun
        if one.change in ("opened", "back")
        and one.incident is not None
        and one.incident.timing is not None
        and not set(one.ranks).isdisjoint(ended.ranks)
    )
    return next((f"recognized as {kind}" for kind in same), "")


def _kept(states: dict[str, IncidentState], now: float) -> dict[str, IncidentState]:
    kept = [
        (key, state)
        for key, state in states.items()
        if state.ended_at is None or now - state.ended_at < REMEMBERED_SECONDS
    ]
    return dict(kept[-STATES_OF_A_JOB:])
