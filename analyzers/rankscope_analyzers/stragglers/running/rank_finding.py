"""Word a rank fault as a finding: the sentence, the evidence, the cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.findings.finding import Evidence, FaultClass, Finding, Subject
from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.peers import healthy_median_by_stage
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.running.cost import if_like_peers
from rankscope_analyzers.stragglers.running.rank_faults import RankFault
from rankscope_analyzers.stragglers.running.windows import Span, is_open
from rankscope_analyzers.text.wording import against

PAGE_COST = 0.10
"""A fault that takes a tenth of every step is worth waking somebody up."""

BASE_CONFIDENCE = 0.5
"""Confidence of a fault that costs nothing; a costlier one is harder to mistake."""

TIMING_ALONE = 0.8
"""Factor for a verdict that no hardware signal backs yet."""


@dataclass(frozen=True, slots=True)
class RankCause:
    """How to speak about one class of rank fault.

    Args:
        column: the measurement that shows the fault.
        doing: what the rank does too long, for "... {} as its peers".
    """

    kind: FaultClass
    column: str
    doing: str
    action: str
    runbook: str


def confidence(lost_fraction: float) -> float:
    """Return how sure timing alone can be of a fault of this cost."""
    return min(1.0, BASE_CONFIDENCE + lost_fraction) * TIMING_ALONE


def bounds(frame: StepFrame, span: Span) -> tuple[float, float | None]:
    """Return Unix start and end of a span, the end None while the fault goes on."""
    starts = frame.starts[span.rows()]
    last = starts[-1] + frame.step[span.stop - 1]
    return float(np.nanmin(starts[0])), None if is_open(frame, span) else float(np.nanmax(last))


def finding(
    frame: StepFrame,
    fault: RankFault,
    values: Floats,
    cause: RankCause,
    part: Floats | None = None,
) -> Finding:
    """Return the finding for ranks whose `values` (S, R) were too long.

    Args:
        frame: the job.
        fault: the ranks and when.
        values: what shows the fault.
        cause: how to speak about it.
        part: (S, R) what it costs to have too long; default: input and compute together.
    """
    accused = fault.mask()
    cost = if_like_peers(frame, accused, fault.span, part)
    since, until = bounds(frame, fault.span)
    evidence = _evidence(frame, fault, values, cause)
    return Finding(
        kind=cause.kind,
        severity="page" if cost.lost_fraction >= PAGE_COST else "ticket",
        subject=subject(frame, fault.columns),
        summary=_summary(frame, fault, evidence[0], cause),
        action=cause.action,
        evidence=evidence,
        cost=cost,
        confidence=confidence(cost.lost_fraction),
        runbook=cause.runbook,
        since_unix_seconds=since,
        until_unix_seconds=until,
    )


def subject(frame: StepFrame, columns: tuple[int, ...]) -> Subject:
    """Name the ranks at these columns of a frame and where they run."""
    gpus = [int(frame.gpus[column]) for column in columns]
    return Subject(
        job_id=frame.job_id,
        ranks=tuple(int(frame.ranks[column]) for column in columns),
        nodes=tuple(frame.nodes[column] for column in columns),
        gpus=tuple(gpu if gpu >= 0 else None for gpu in gpus),
    )


def _evidence(
    frame: StepFrame, fault: RankFault, values: Floats, cause: RankCause
) -> tuple[Evidence, ...]:
    """Set the worst rank beside its healthy peers: the slow phase first, then what follows."""
    measured = (
        (cause.column, values, "the slow phase"),
        ("sync_seconds", frame.sync, "waiting in collectives: its peers wait for it"),
        ("step_seconds", frame.step, "the whole step: equal on all ranks, so it names nobody"),
    )
    found = []
    for column, matrix, meaning in measured:
        observed, expected = _against_peers(frame, fault, matrix)
        if np.isfinite(observed + expected):
            found.append(Evidence(column, observed, expected, "seconds", meaning))
    return tuple(found)


def _against_peers(frame: StepFrame, fault: RankFault, values: Floats) -> tuple[float, float]:
    """Return means over the fault of the worst rank's value and of its healthy peers' median."""
    rows, worst = fault.span.rows(), fault.columns[0]
    peers = healthy_median_by_stage(values[rows], fault.mask(), frame.stages)
    return _mean(values[rows, worst]), _mean(peers[:, worst])


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _summary(frame: StepFrame, fault: RankFault, main: Evidence, cause: RankCause) -> str:
    worst = fault.columns[0]
    gpu = f", GPU {frame.gpus[worst]}" if frame.gpus[worst] >= 0 else ""
    others = len(fault.columns) - 1
    company = f" (and {others} more rank{'s' if others > 1 else ''})" if others else ""
    ratio = f"{main.observed / main.expected:.2f}x as long" if main.expected > 0 else "long"
    comparison = " as its peers" if main.expected > 0 else ""
    return (
        f"rank {frame.ranks[worst]} (node {frame.nodes[worst]}{gpu}){company} "
        f"{cause.doing.format(ratio)}{comparison} "
        f"({against(main.observed, main.expected)} a step)"
    )
