"""One verdict per job: which finding explains the lost time, or that there is none.

Which cause explains others is decided when incidents are opened (`cause_selection`). Of several
faults an active one comes before one that is over, then the more urgent one, then the costlier one.
Reports list incidents in the same order, so that the first of these and the verdict are about the
same fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from rankscope_analyzers.findings.finding import FaultClass, Finding
from rankscope_analyzers.numeric.row_statistics import column_median
from rankscope_analyzers.steps.clocks import ClockOffset
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.checks import CHECKS
from rankscope_analyzers.stragglers.naive import NaiveAnswer, largest_step_time, step_medians
from rankscope_analyzers.stragglers.view import Part
from rankscope_analyzers.stragglers.what_if import WhatIf
from rankscope_analyzers.text.name_lists import ranks_listed

CLASSES: tuple[FaultClass, ...] = get_args(FaultClass)

MINIMUM_STEPS = 12
"""Fewer usable steps than this carry no verdict: one hiccup would decide."""

FULL_COVERAGE_STEPS = 64
"""Usable steps after which "no straggler" is as certain as timing alone can make it."""


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Medians over the usable steps of one rank, in seconds; None where not measured."""

    rank: int
    node: str
    step: float | None
    data: float | None
    compute: float | None
    sync: float | None
    cpu_wait: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What slows a job down, and how much of the job could be observed.

    Args:
        cause: the finding that explains it, None if there is no straggler.
        others: findings that the cause explains or outweighs.
        confidence: in the cause, or that there is none; 0 to 1.
        unobserved: what could not be observed, as sentences.
        ranks: each rank's medians.
        naive: the answer of step times alone.
        steps: usable steps that were judged.
        what_if: how much faster the job would be without slow ranks, None if unknown.
        clock_offsets: differences between the clocks of the job's nodes; empty for one node.
        asides: other remarks on how the job spends its time, as sentences.
        undecided: why there is no verdict, as a clause; empty if there is one.
    """

    job_id: str
    cause: Finding | None
    others: tuple[Finding, ...]
    confidence: float
    unobserved: tuple[str, ...]
    ranks: tuple[RankTimes, ...]
    naive: NaiveAnswer
    steps: int
    median_step_seconds: float | None
    what_if: WhatIf | None = None
    clock_offsets: tuple[ClockOffset, ...] = ()
    asides: tuple[str, ...] = ()
    undecided: str = ""

    @property
    def why_none(self) -> str:
        """Return why there is no verdict, as far as it is known: else what else was not seen."""
        return self.undecided or next(iter(self.unobserved), "")

    @property
    def unexplained_loss(self) -> float:
        """Return the fraction of the time that differences between ranks cost without a cause."""
        if self.cause is not None or self.what_if is None:
            return 0.0
        return self.what_if.stage_weights_kept.lost_fraction


def judge(
    frame: StepFrame,
    findings: Sequence[Finding],
    known: frozenset[Part],
    ideals: WhatIf | None = None,
) -> Verdict:
    """Return the verdict on one job.

    That no rank delays the others is the less certain the more time differences between ranks cost.

    Args:
        frame: the job.
        findings: of its step times.
        known: parts of the step that they were judged by.
        ideals: how much faster the job would be without slow ranks, None if unknown.
    """
    steps = int(frame.usable.sum())
    enough = steps >= MINIMUM_STEPS and len(frame.ranks) > 1
    ordered = sorted(findings, key=urgency) if enough else []
    cause = ordered[0] if ordered else None
    confidence = _confidence(frame, steps, known, cause) if enough else 0.0
    unobserved = (*_unobserved(frame, steps), *(_undetectable(known) if enough else ()))
    judged = Verdict(
        job_id=frame.job_id,
        cause=cause,
        others=tuple(ordered[1:]),
        confidence=confidence,
        unobserved=unobserved,
        ranks=_rank_times(frame),
        naive=largest_step_time(frame),
        steps=steps,
        median_step_seconds=_known(float(np.nanmedian(step_medians(frame)))) if steps else None,
        what_if=ideals,
        undecided="" if confidence else next(iter(unobserved), ""),
    )
    return replace(judged, confidence=confidence * (1.0 - judged.unexplained_loss))


def urgency(finding: Finding) -> tuple[bool, bool, float]:
    """Sort key of findings: active ones before past ones, then by severity, then by cost."""
    return (
        finding.until_unix_seconds is not None,
        finding.severity != "page",
        -finding.known_cost.gpu_hours,
    )


def _confidence(
    frame: StepFrame, steps: int, known: frozenset[Part], cause: Finding | None
) -> float:
    uncontested = 1.0 - frame.contested_share
    if cause is None:
        return _coverage(frame, steps, known) * uncontested
    return (cause.confidence or 0.0) * uncontested


def _coverage(frame: StepFrame, steps: int, known: frozenset[Part]) -> float:
    """Return the confidence that nothing is wrong: by observed ranks, steps and classes."""
    observed = len(frame.ranks) / frame.world_size
    classes = 1 - len(undetectable(known)) / len(CLASSES)
    return observed * min(1.0, steps / FULL_COVERAGE_STEPS) * classes


def undetectable(known: frozenset[Part]) -> tuple[FaultClass, ...]:
    """Return the classes that cannot be detected from the parts of the step that are measured."""
    detectable = {one.kind for one in CHECKS if one.needs and one.needs <= known}
    return tuple(kind for kind in CLASSES if kind not in detectable)


def _undetectable(known: frozenset[Part]) -> Iterator[str]:
    if kinds := undetectable(known):
        yield f"{', '.join(kinds)} cannot be detected without these times"


def _unobserved(frame: StepFrame, steps: int) -> tuple[str, ...]:
    sentences = []
    if steps < MINIMUM_STEPS:
        sentences.append(
            f"only {steps} usable steps were recorded, a verdict needs {MINIMUM_STEPS}"
        )
    if len(frame.ranks) < 2:
        sentences.append("one rank only: there is no rank to compare it with")
    if unobserved := frame.unobserved:
        which = ranks_listed(unobserved)
        sentences.append(f"no records of {len(unobserved)} of {frame.world_size} ranks: {which}")
    for name, values in (("data", frame.data), ("compute", frame.compute), ("sync", frame.sync)):
        unknown = int((~np.isfinite(values).any(axis=0)).sum())
        if unknown:
            sentences.append(
                f"{name} time is not measured on {unknown} of {len(frame.ranks)} ranks"
            )
    sentences.extend(map(str, frame.dropped))
    return tuple(sentences)


def _rank_times(frame: StepFrame) -> tuple[RankTimes, ...]:
    judged = frame.usable_only()
    times = (judged.step, judged.data, judged.compute, judged.sync, judged.cpu_wait)
    columns = [column_median(values) for values in times]
    return tuple(
        RankTimes(int(rank), frame.nodes[index], *(_known(float(c[index])) for c in columns))
        for index, rank in enumerate(frame.ranks)
    )


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
