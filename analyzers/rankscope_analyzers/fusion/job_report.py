"""What is to be reported about one job, before it is written in any format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope_analyzers.findings.finding import Cost, Finding, Layer, RankLocation, Severity, Where
from rankscope_analyzers.isolation.boundary import AnalysisError
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault with everything that it explains.

    Args:
        cause: what comes first: the physical cause if one was seen, else what the timing shows.
        signals: what else was seen of the same fault, symptoms among it; the cause is not repeated.
        where: who suffers or is slow, by all layers together.
        summary: one sentence: who, what, why.
        confidence: 0 to 1; raised by layers that agree, lowered by layers that could not look.
        cost: None where no step times tell.
        timing: what step times show of it, None where they show nothing.
    """

    cause: Finding
    signals: tuple[Finding, ...]
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

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that speak for it, that of the cause first."""
        return tuple(dict.fromkeys(signal.layer for signal in (self.cause, *self.signals)))


@dataclass(frozen=True, slots=True)
class JobReport:
    """One job.

    Args:
        verdict: what the timing says, None for a job without step records.
        frame: the steps it was judged by, None likewise.
        incidents: what is wrong, what costs most first; the first one is the answer.
        observations: findings that nothing suffers from as far as can be seen.
        locations: each known rank's place, by rank.
        unobserved: what could not be seen, as sentences.
        sources: where all this was read, such as addresses and queries.
        made_unix_seconds: when.
        missing: what should have been seen and was not, as sentences: without it nobody can say
            that nothing is wrong.
        errors: what was not concluded because an analyzer raised.
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
