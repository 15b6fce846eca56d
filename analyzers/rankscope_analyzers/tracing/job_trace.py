"""The spans of one job from successive looks: what has ended since the last look. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.goodput.executed import Executed
from rankscope_analyzers.steps.beside_steps import BesideSteps
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.tracing import spans
from rankscope_analyzers.tracing.spans import Span, Value, identity_of, trace_of
from rankscope_analyzers.watch.incident_history import could_see_ends, key_of, running

CLOCKS_SECONDS = 0.2
"""Seconds by which a step may begin before the end of the one before, by the clocks of nodes."""

CHECKPOINT, SAVE = "checkpoint", "checkpoint_save"
MOST_RANKS = 64
"""Ranks of an incident that its span lists."""

MOST_INCIDENTS = 64
"""Incidents of a job that are open at once."""


@dataclass(slots=True)
class OpenIncident:
    """An incident that has not ended."""

    since: float
    kind: str
    severity: str
    summary: str
    runbook: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]


@dataclass(slots=True)
class JobTrace:
    """What is known of a job whose span has not ended; moments are Unix times.

    Args:
        job_id: its name.
        began: start of its first step that was seen.
        last_end: of its newest step.
        attempt: number of the present attempt, counted from 0 since it was watched.
        launched: the launcher's number of it, -1 if unknown.
        attempt_began: start of its first step.
        open: incidents by their identity while they last.
    """

    job_id: str
    began: float
    last_end: float
    attempt: int
    launched: int
    attempt_began: float
    open: dict[str, OpenIncident] = field(default_factory=dict)

    @property
    def trace(self) -> int:
        """Return the identifier of the job's trace."""
        return trace_of(self.job_id, self.began)

    def look(
        self, steps: Executed, report: JobReport, beside: Sequence[BesideSteps] = ()
    ) -> Iterator[Span]:
        """Yield what has ended.

        Args:
            steps: that the job executed, possibly including some that were seen before.
            report: on it.
            beside: what its ranks did outside of steps.
        """
        yield from self._steps(steps, beside)
        yield from self._incidents(report)

    def close(self) -> Iterator[Span]:
        """Yield the rest: the job is over."""
        for key in list(self.open):
            yield self._incident(key, self.last_end)
        yield self._attempt("")
        own = identity_of(self.trace, "job")
        yield Span("job", self.trace, own, None, self.began, self.last_end, self._shared())

    def _steps(self, steps: Executed, beside: Sequence[BesideSteps]) -> Iterator[Span]:
        saved = [one for one in beside if one.kind == SAVE]
        for at in range(len(steps)):
            start, end = float(steps.start[at]), float(steps.end[at])
            if start < self.last_end - CLOCKS_SECONDS:
                continue
            launched = int(steps.attempt[at])
            again = at > 0 and steps.restarts[at] != steps.restarts[at - 1]
            if self.last_end > self.began and (again or launched != self.launched):
                yield self._attempt("the job was restarted")
                self.attempt += 1
                self.attempt_began = start
            self.launched, self.last_end = launched, max(self.last_end, end)
            seconds = float(steps.checkpoint[at])
            if seconds > 0:
                yield self._checkpoint(int(steps.number[at]), start, end, seconds, saved)

    def _checkpoint(
        self, step: int, start: float, end: float, seconds: float, saved: Sequence[BesideSteps]
    ) -> Span:
        """Return a checkpoint's span; if no rank reports when it began, it ends with its step."""
        begun = [one.begin for one in saved if start <= one.begin <= end]
        since = min(begun, default=max(start, end - seconds))
        identity = identity_of(self.trace, CHECKPOINT, str(self.attempt), str(step))
        attributes = {**self._shared(), spans.ATTEMPT: self.attempt, spans.STEP: step}
        parent = self._attempt_identity()
        return Span(CHECKPOINT, self.trace, identity, parent, since, since + seconds, attributes)

    def _attempt(self, error: str) -> Span:
        attributes = {**self._shared(), spans.ATTEMPT: self.attempt}
        if error:
            attributes[spans.ERROR_TYPE] = "restart"
        return Span(
            *("attempt", self.trace, self._attempt_identity(), identity_of(self.trace, "job")),
            *(self.attempt_began, self.last_end, attributes, error),
        )

    def _attempt_identity(self) -> int:
        return identity_of(self.trace, "attempt", str(self.attempt))

    def _incidents(self, report: JobReport) -> Iterator[Span]:
        now = report.made_unix_seconds
        active = {key_of(one): one for one in running(report)}
        if could_see_ends(report):
            for key in [key for key in self.open if key not in active]:
                yield self._incident(key, _end_of(key, report) or now)
        for key, incident in active.items():
            since = self.open[key].since if key in self.open else incident.since_unix_seconds
            if key in self.open or len(self.open) < MOST_INCIDENTS:
                self.open[key] = _opened(incident, since or now)

    def _incident(self, key: str, end: float) -> Span:
        one = self.open.pop(key)
        identity = identity_of(self.trace, "incident", key, f"{one.since:.3f}")
        attributes: dict[str, Value] = {
            **self._shared(),
            spans.ATTEMPT: self.attempt,
            spans.KIND: one.kind,
            spans.ERROR_TYPE: one.kind,
            spans.SEVERITY: one.severity,
            spans.RUNBOOK: one.runbook,
            spans.RANKS: one.ranks,
        }
        if len(one.nodes) == 1:
            attributes[spans.NODE] = one.nodes[0]
        return Span(
            *("incident", self.trace, identity, self._attempt_identity()),
            *(one.since, max(end, one.since), attributes, one.summary),
        )

    def _shared(self) -> dict[str, Value]:
        namespace, slash, _ = self.job_id.partition("/")
        found: dict[str, Value] = {spans.JOB_ID: visible(self.job_id)}
        return found | ({spans.NAMESPACE: visible(namespace)} if slash else {})

    def kept(self) -> dict[str, Any]:
        """Return the state in JSON-ready form."""
        return asdict(self)


def begun(job_id: str, steps: Executed) -> JobTrace:
    """Return the trace of a job that is seen for the first time, with at least one step."""
    start = float(steps.start[0])
    return JobTrace(job_id, start, start, 0, int(steps.attempt[0]), start)


def restored(kept: Mapping[str, Any]) -> JobTrace:
    """Return a trace from its saved state.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: it is invalid.
    """
    opened = {str(key): _reopened(one) for key, one in kept["open"].items()}
    numbers = (float(kept["began"]), float(kept["last_end"]), int(kept["attempt"]))
    launched, attempt_began = int(kept["launched"]), float(kept["attempt_began"])
    return JobTrace(str(kept["job_id"]), *numbers, launched, attempt_began, opened)


def _reopened(one: Mapping[str, Any]) -> OpenIncident:
    return OpenIncident(
        since=float(one["since"]),
        kind=str(one["kind"]),
        severity=str(one["severity"]),
        summary=str(one["summary"]),
        runbook=str(one["runbook"]),
        nodes=tuple(map(str, one["nodes"])),
        ranks=tuple(map(int, one["ranks"])),
    )


def _opened(incident: Incident, since: float) -> OpenIncident:
    return OpenIncident(
        since,
        incident.cause.kind,
        incident.severity,
        visible(incident.summary),
        incident.runbook,
        tuple(visible(node) for node in incident.where.nodes[:MOST_RANKS]),
        tuple(incident.where.ranks[:MOST_RANKS]),
    )


def _end_of(key: str, report: JobReport) -> float | None:
    ends = [one.until_unix_seconds for one in report.incidents if key_of(one) == key]
    return max((end for end in ends if end is not None), default=None)
