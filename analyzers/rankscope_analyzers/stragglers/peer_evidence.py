"""Evidence: measurements of a culprit and of its peers while a fault was active."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.findings.finding import Evidence
from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.peers import healthy_median_by_stage
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.incidents import Incident

CLOCK_SLACK_SECONDS = 0.5
"""Tolerance for the clocks of nodes, which differ by less."""


def peer_evidence(frame: StepFrame, incident: Incident) -> tuple[Evidence, ...]:
    """Return the waiting and the step time of the worst rank and of healthy ranks.

    Empty if the frame does not contain the time of the fault, or the rank on its node.
    """
    column = _column(frame, incident)
    rows = _during(frame, incident)
    if column is None or not rows.any():
        return ()
    accused = np.isin(frame.ranks, incident.ranks)
    measured = (
        ("sync_seconds", frame.sync, "waiting in collectives: its peers wait for it"),
        ("step_seconds", frame.step, "the whole step: equal on all ranks, so it identifies none"),
    )
    evidence = []
    for name, values, meaning in measured:
        peers = healthy_median_by_stage(values[rows], accused, frame.stages)
        observed, expected = _mean(values[rows, column]), _mean(peers[:, column])
        if np.isfinite(observed + expected):
            evidence.append(Evidence(name, observed, expected, "seconds", meaning))
    return tuple(evidence)


def _column(frame: StepFrame, incident: Incident) -> int | None:
    if not incident.ranks:
        return None
    columns = np.flatnonzero(frame.ranks == incident.ranks[0])
    known = len(columns) == 1 and frame.nodes[int(columns[0])] == incident.nodes[0]
    return int(columns[0]) if known else None


def _during(frame: StepFrame, incident: Incident) -> Booleans:
    start = np.fmin.reduce(frame.starts, axis=1)
    until = np.inf if incident.until is None else incident.until
    inside = (start >= incident.since - CLOCK_SLACK_SECONDS) & (start <= until)
    return np.asarray(inside & frame.usable)


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
