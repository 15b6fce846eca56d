"""One verdict per job: which finding explains the lost time, or that there is none.

Findings compete. Causes are judged in the order in which a step spends its time (input, compute,
exchange, everything), because a slow earlier phase makes the later ones look odd: a later cause
must cost clearly more than an earlier one to win. A fault that goes on beats one that is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.findings.finding import Analyzer, Finding
from rankscope_analyzers.numeric.row_statistics import column_median
from rankscope_analyzers.steps.clocks import ClockOffset
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.naive import NaiveAnswer, largest_step_time, step_medians
from rankscope_analyzers.stragglers.what_if import WhatIf
from rankscope_analyzers.text.name_lists import ranks_listed

LATER_MUST_COST = 1.6
"""Factor by which a later phase must cost more than an earlier one to be called the cause."""

MINIMUM_STEPS = 12
"""Fewer usable steps than this carry no verdict: one hiccup would decide."""

FULL_COVERAGE_STEPS = 64
"""Usable steps after which "no straggler" is as sure as timing alone makes it."""


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
    """What holds a job back, and how much of it could be seen.

    Args:
        cause: the finding that explains it, None when there is no straggler.
        others: findings that the cause explains or outweighs.
        confidence: of the cause, or of there being none; 0 to 1.
        unobserved: what could not be seen, as sentences.
        ranks: each rank's medians.
        naive: what step times alone would say.
        steps: usable steps that were judged.
        what_if: how much faster the job would be if nobody was slow, None where that is not known.
        clock_offsets: by how much the clocks of the job's nodes differ; none with one node.
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


def judge(frame: StepFrame, analyzers: Mapping[str, Analyzer]) -> Verdict:
    """Run the analyzers over one job, in their order, and weigh what they find."""
    steps = int(frame.usable.sum())
    enough = steps >= MINIMUM_STEPS and len(frame.ranks) > 1
    findings = [found for analyze in analyzers.values() for found in analyze(frame) if enough]
    cause = _cause(findings)
    return Verdict(
        job_id=frame.job_id,
        cause=cause,
        others=tuple(found for found in findings if found is not cause),
        confidence=cause.confidence if cause else _coverage(frame, steps) if enough else 0.0,
        unobserved=_unobserved(frame, steps),
        ranks=_rank_times(frame),
        naive=largest_step_time(frame),
        steps=steps,
        median_step_seconds=_known(float(np.nanmedian(step_medians(frame)))) if steps else None,
    )


def _cause(findings: Sequence[Finding]) -> Finding | None:
    running = [found for found in findings if found.until_unix_seconds is None]
    cause: Finding | None = None
    for found in running or findings:
        factor = 1.0 if cause is None or cause.kind == found.kind else LATER_MUST_COST
        if cause is None or found.cost.gpu_hours > factor * cause.cost.gpu_hours:
            cause = found
    return cause


def _coverage(frame: StepFrame, steps: int) -> float:
    observed = len(frame.ranks) / frame.world_size
    timed = float(np.isfinite(frame.compute).any(axis=0).mean())
    return observed * min(1.0, steps / FULL_COVERAGE_STEPS) * (0.5 + 0.5 * timed)


def _unobserved(frame: StepFrame, steps: int) -> tuple[str, ...]:
    said = []
    if steps < MINIMUM_STEPS:
        said.append(f"only {steps} usable steps were recorded, a verdict needs {MINIMUM_STEPS}")
    if len(frame.ranks) < 2:
        said.append("one rank only: there is nobody to compare it with")
    if frame.unobserved:
        which = ranks_listed(frame.unobserved)
        said.append(f"no records of {len(frame.unobserved)} of {frame.world_size} ranks: {which}")
    for name, values in (("data", frame.data), ("compute", frame.compute), ("sync", frame.sync)):
        unknown = int((~np.isfinite(values).any(axis=0)).sum())
        if unknown:
            said.append(f"{name} time is not measured on {unknown} of {len(frame.ranks)} ranks")
    said.extend(map(str, frame.dropped))
    return tuple(said)


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
