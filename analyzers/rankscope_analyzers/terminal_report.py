"""A job's report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from rankscope_analyzers import report
from rankscope_analyzers.job_report import Incident, JobReport
from rankscope_analyzers.signals import LAYER_NAMES

SHOWN_SIGNALS = 6
"""Signals listed of one incident; --json has all."""


def show(console: Console, jobs: Sequence[JobReport]) -> None:
    """Print reports for a person."""
    for job in jobs:
        console.print(render(job))


def render(job: JobReport) -> RenderableType:
    """Return the report of one job: what step times say, then what other layers make of it."""
    parts: list[RenderableType] = []
    if job.verdict:
        parts.append(report.render(job.verdict))
    else:
        parts.append(Text(f"job {job.job_id}: {len(job.places)} ranks, no step records"))
    parts.extend(line for incident in job.incidents for line in _incident(incident))
    said = set(job.verdict.unobserved) if job.verdict else set()
    parts.extend(
        Text(f"Not seen: {sentence}.", style="yellow")
        for sentence in job.unobserved
        if sentence not in said
    )
    return Group(*parts)


def _incident(incident: Incident) -> Iterator[RenderableType]:
    if incident.layers == ("training",):
        return
    yield Text(f"{incident.summary}. Confidence {incident.confidence:.2f}.", style="bold red")
    yield Text(f"{incident.action} See {incident.runbook}.")
    for signal in (incident.cause, *incident.signals)[:SHOWN_SIGNALS]:
        yield Text(f"  {LAYER_NAMES[signal.layer]}: {signal.summary}")
