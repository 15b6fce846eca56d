"""What the timing of steps and the life of ranks say, as signals."""

from __future__ import annotations

from pathlib import PurePosixPath

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.findings.signals import Signal, Where
from rankscope_analyzers.findings.whereabouts import Places


def of_finding(found: Finding, places: Places) -> Signal:
    """Return a finding about step times as a signal; its ranks' GPUs come from their places."""
    ranks = found.subject.ranks
    known = [places[rank] for rank in ranks if rank in places]
    where = Where(
        nodes=tuple(dict.fromkeys(found.subject.nodes)),
        ranks=ranks,
        uuids=tuple(dict.fromkeys(place.uuid for place in known if place.uuid)),
        gpus=tuple(dict.fromkeys(place.gpu for place in known if place.gpu)),
    )
    return Signal(
        kind=found.kind,
        layer="training",
        severity=found.severity,
        job_id=found.subject.job_id,
        where=where if ranks else Where(),
        summary=found.summary,
        action=found.action,
        runbook=PurePosixPath(found.runbook).stem,
        evidence=found.evidence,
        since_unix_seconds=found.since_unix_seconds,
        until_unix_seconds=found.until_unix_seconds,
        source="step records",
    )
