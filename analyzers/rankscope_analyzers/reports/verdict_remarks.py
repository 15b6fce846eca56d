"""Additional remarks on a verdict, as sentences that all reports show."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_analyzers.stragglers.verdict import Verdict
from rankscope_analyzers.text.wording import duration

SAME_IDEAL = 0.005
"""Fraction of the step by which ideals may differ and still be shown as one number."""

NOTABLE_OFFSET_SECONDS = 0.005
"""A tenth of a step in the fastest jobs; NTP keeps nodes of a cluster within a millisecond."""

LEAST_SPREAD = 0.0005
"""Fraction by which the slowest rank's steps are longer and still written as 0.1 %, not 0.0 %."""

NOTABLE_LOSS = 0.05
"""Fraction of the time that is worth a word: that healthy GPUs differ, and vary from step to step,
costs two to three per cent."""


def no_straggler(verdict: Verdict) -> str:
    """Return the answer that no rank is slow, as a clause, and what differences cost all the same.

    Ranks that take turns, or are slow in few steps that take long, cost time and do not stand out.
    """
    if not (cost := cost_of_differences(verdict)):
        return "no straggler: no rank delays the others"
    return f"no straggler was found, although {cost}"


def cost_of_differences(verdict: Verdict) -> str:
    """Return what differences between ranks cost without a cause, as a clause; empty if little.

    It is as much if they wait for each other in every step, and less if they rarely do.
    """
    lost = verdict.unexplained_loss
    if lost < NOTABLE_LOSS:
        return ""
    return f"differences between ranks cost up to {lost:.0%} of the time"


def remarks(verdict: Verdict) -> tuple[str, ...]:
    """Return what the whole run lost, the answer of step times alone, and whose clock is off."""
    return (*verdict.asides, *what_if(verdict), *naive(verdict), *clocks(verdict))


def what_if(verdict: Verdict) -> Iterator[str]:
    """Return what the whole run lost; the two ideals are distinguished if stages are uneven."""
    ideals = verdict.what_if
    if ideals is None:
        return
    equal, kept = ideals.all_equal, ideals.stage_weights_kept
    sentences = (
        f"Over all steps judged the job ran {equal.slowdown:.2f}x as long as with all ranks equal "
        f"({equal.gpu_hours:.3g} GPU-hours)"
    )
    if abs(equal.lost_fraction - kept.lost_fraction) >= SAME_IDEAL:
        sentences += (
            f", {kept.slowdown:.2f}x as long as with its stages as they are and no slow rank "
            f"({kept.gpu_hours:.3g} GPU-hours)"
        )
    yield f"{sentences}."


def naive(verdict: Verdict) -> Iterator[str]:
    """Name the rank that step times alone would blame, if they would and it is not the culprit."""
    rank, spread = verdict.naive.rank, verdict.naive.spread
    culprits = verdict.cause.where.ranks if verdict.cause is not None else ()
    if rank is not None and rank not in culprits and spread >= LEAST_SPREAD:
        yield (
            f"Step times alone would blame rank {rank}, {spread:.1%} "
            "above the fastest: in a synchronous job, all ranks take equally long."
        )


def clocks(verdict: Verdict) -> Iterator[str]:
    """Name the node whose clock is furthest off, if that would mislead readers of logs."""
    known = [offset for offset in verdict.clock_offsets if offset.significant]
    worst = max(known, key=lambda offset: abs(offset.seconds), default=None)
    if worst is not None and abs(worst.seconds) >= NOTABLE_OFFSET_SECONDS:
        where = "ahead of" if worst.seconds > 0 else "behind"
        yield (
            f"Clocks: {worst.node} is {duration(abs(worst.seconds))} {where} the middle of"
            f" {len(verdict.clock_offsets)} nodes, by the common ends of their steps."
        )
