"""The report on one job, independent of its output format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rankscope_analyzers.findings.finding import Cost, Finding, Layer, RankLocation, Severity, Where
from rankscope_analyzers.isolation.boundary import AnalysisError
from rankscope_analyzers.layers.endings import ENDS
from rankscope_analyzers.layers.hang import HANG
from rankscope_analyzers.profiles.stacks import GroupedStacks
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault with everything that it explains.

    Args:
        cause: the physical cause if one was found, else what the timing shows.
        findings: other findings of the same fault, symptoms included, without the cause.
        where: what is affected or slow according to all layers together.
        summary: one sentence: who, what, why.
        confidence: 0 to 1; raised by layers that agree, lowered by layers that were not observed.
        cost: None if unknown, without step times.
        timing: the finding of step times, None if there is none.
        ended_with_job: True if it is over only because the job is.
        other_causes: what may add to it, such as faults of ranks that are not the worst one.
    """

    cause: Finding
    findings: tuple[Finding, ...]
    where: Where
    severity: Severity
    summary: str
    action: str
    runbook: str
    confidence: float
    cost: Cost | None
    since_unix_seconds: float | None
    until_unix_seconds: float | None
    timing: Finding | None = None
    ended_with_job: bool = False
    other_causes: tuple[Finding, ...] = ()

    @property
    def stands(self) -> bool:
        """Return True if no step of the job ends any longer, so that all of its time is lost."""
        return self.timing is not None and self.timing.kind == HANG

    @property
    def ended_job(self) -> bool:
        """Return True if the end of the job is part of it: it is what ended the job.

        Anything may have come after an end whose time is not known.
        """
        ends = (one for one in (self.cause, *self.findings) if one.kind in ENDS)
        return any(one.since_unix_seconds is not None for one in ends)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return the layers that found it, that of the cause first."""
        findings = (self.cause, *self.findings)
        return tuple(dict.fromkeys(layer for one in findings for layer in one.layers))


@dataclass(frozen=True, slots=True)
class JobReport:
    """One job.

    Args:
        verdict: from step times, None for a job without step records.
        frame: the steps that the verdict is based on, None for such a job.
        incidents: the most severe and costly first; the first one is the answer.
        observations: findings without any observed effect on the job.
        locations: where each known rank runs, by rank.
        unobserved: what could not be observed, as sentences.
        sources: where the data was read, such as addresses and queries.
        made_unix_seconds: when the report was made.
        missing: what should have been observed and was not, as sentences: without it the job cannot
            be called healthy.
        errors: of analyzers that raised.
        stacks: call stacks of the ranks of a hung job, None for others.
        spent: GPU-seconds of the observed time by part; None where the account was not made.
        convergence: the state of the loss, one of `CONVERGENCE_STATUSES`; None if unknown.
    """

    job_id: str
    verdict: Verdict | None
    frame: StepFrame | None
    incidents: tuple[Incident, ...]
    observations: tuple[Finding, ...]
    locations: Mapping[int, RankLocation]
    unobserved: tuple[str, ...]
    sources: tuple[str, ...]
    made_unix_seconds: float
    missing: tuple[str, ...] = ()
    errors: tuple[AnalysisError, ...] = ()
    stacks: GroupedStacks | None = None
    spent: Mapping[str, float] | None = None
    convergence: str | None = None

    @property
    def over(self) -> Finding | None:
        """Return how the job ended, None while it is active or if its end was not seen.

        If its cause is known, the end is part of an incident.
        """
        of_incidents = (finding for one in self.incidents for finding in (one.cause, *one.findings))
        return next((one for one in (*self.observations, *of_incidents) if one.kind in ENDS), None)

    def without_steps(self) -> JobReport:
        """Return the report with only the newest of the steps that it was made of.

        The steps of a fleet take 100 MB, and exporters of a report need none of them.
        """
        return self if self.frame is None else replace(self, frame=self.frame.newest_only())
