"""What is always the same about one kind of signal: how bad it is and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope_analyzers.finding import Evidence, Severity
from rankscope_analyzers.signals import Layer, Signal, Where


@dataclass(frozen=True, slots=True)
class Advice:
    """One kind of signal of a layer.

    Args:
        runbook: the name of a file under docs/runbooks, without its ending.
    """

    kind: str
    layer: Layer
    severity: Severity
    action: str
    runbook: str

    def signal(
        self,
        job_id: str,
        where: Where,
        said: str,
        evidence: tuple[Evidence, ...],
        since_unix_seconds: float | None = None,
    ) -> Signal:
        """Return a signal of this kind; its sources are those of its evidence."""
        return Signal(
            kind=self.kind,
            layer=self.layer,
            severity=self.severity,
            job_id=job_id,
            where=where,
            summary=said,
            action=self.action,
            runbook=f"docs/runbooks/{self.runbook}.md",
            evidence=evidence,
            since_unix_seconds=since_unix_seconds,
            source=", ".join(dict.fromkeys(item.source for item in evidence)),
        )
