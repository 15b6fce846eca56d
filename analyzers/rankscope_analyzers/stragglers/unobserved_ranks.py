"""Unobserved ranks that their peers may be waiting for.

An unobserved rank cannot be named as the culprit, as nothing of it was measured. But if every
observed member of its gradient group waits longer than at the start, and no observed rank is slow,
they may be waiting for it, and someone should check. A rank that has fallen silent is unobserved
from then on: its node may be failing, and it may have been becoming slow. Groups are not compared
with each other: if a rank is late, its tensor and pipeline peers are too, and all groups wait
alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.numeric.row_statistics import row_maximum, row_median
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.stragglers.view import WINDOW_STEPS
from rankscope_analyzers.text.name_lists import ranks_named
from rankscope_analyzers.text.wording import duration

MINIMUM_WAIT = 0.02
"""Share of the step, as for the exchange: shorter waits are not worth looking at."""

SIGMAS = 5.0
"""Standard errors of the mean of a window."""

LARGE_WAIT = 0.25
"""Share of the step that all observed ranks spend in collectives, from the start, above which it is
said that they may be waiting for a rank that has no records. Exchanges take that much, too."""

EARLY_STEPS = 30
"""Usable steps at the start that later ones are compared with."""


SILENT_SECONDS = 120.0
"""Records of some ranks arrive later than those of others, by a poll of their agent, or by two
scrapes of a minute."""


def fallen_silent(frame: StepFrame) -> Mapping[int, float]:
    """Return the ranks that reported in the newest run and no longer do, with seconds since then.

    The newest steps are those that most ranks reported.
    """
    newest = frame.rows(frame.usable & (frame.segments == frame.segments.max(initial=0)))
    if len(newest.steps) < 2 * WINDOW_STEPS:
        return {}
    reported = np.isfinite(newest.step)
    silent = reported.any(axis=0) & ~reported[-WINDOW_STEPS:].any(axis=0)
    last = row_maximum(np.where(reported, newest.starts, np.nan).T)
    since = float(row_median(newest.starts[-1:])[0]) - last
    chosen = np.flatnonzero(silent & (since > SILENT_SECONDS))
    return {int(newest.ranks[one]): float(since[one]) for one in chosen}


def silence(silent: Mapping[int, float]) -> tuple[str, ...]:
    """Return a sentence about ranks that have fallen silent, nothing if none has."""
    if not silent:
        return ()
    have = "has" if len(silent) == 1 else "have"
    return (
        f"{ranks_named(sorted(silent))} {have} had no records for"
        f" {duration(min(silent.values()))}, while others went on",
    )


def unseen_during(
    frame: StepFrame, silent: Mapping[int, float], since: float, until: float | None
) -> tuple[int, ...]:
    """Return the ranks that nobody has seen since an incident began.

    Args:
        frame: the job's newest steps.
        silent: ranks that have fallen silent, with seconds since then.
        since: when the incident began.
        until: when it ended, None while it lasts.
    """
    began, ended = frame.began_unix_seconds, frame.ended_unix_seconds
    if began is None or ended is None or (until is not None and since < began):
        return ()  # who reported then is no longer known
    never = frame.unobserved if frame.unobserved_count else ()
    return tuple(sorted({*never, *(one for one, ago in silent.items() if ended - ago <= since)}))


def without_records(ranks: Collection[int]) -> str:
    """Write "rank 3, which has no records," or "one of ranks 8-15, which have no records,"."""
    one_of, have = ("", "has") if len(ranks) == 1 else ("one of ", "have")
    return f"{one_of}{ranks_named(ranks)}, which {have} no records,"


def warnings(
    frame: StepFrame, job: Layout, findings: Sequence[Finding], silent: Collection[int] = ()
) -> tuple[str, ...]:
    """Return a sentence for each gradient group that waits for an unobserved rank.

    Args:
        frame: the job.
        job: the arrangement of its ranks.
        findings: of its step times.
        silent: ranks that are no longer observed.
    """
    judged = frame.usable_only()
    if (
        not (frame.unobserved_count or silent)
        or len(judged.steps) < 2 * WINDOW_STEPS
        or any(f.where.ranks for f in findings if f.until_unix_seconds is None)
    ):
        return ()
    unseen = sorted({*frame.unobserved, *silent})
    unobserved = np.array([rank for rank in unseen if rank < job.world], dtype=np.int64)
    groups = _group(unobserved, job)
    sentences = []
    for group in np.unique(groups).tolist():
        longer = _longer(judged, _least_wait(judged, group, job))
        if longer > 0:
            sentences.append(_sentence(unobserved[groups == group].tolist(), longer))
    return tuple(sentences)


def unexplained_wait(
    frame: StepFrame, findings: Sequence[Finding], silent: Collection[int]
) -> float:
    """Return the share of the step that all observed ranks wait and unobserved ones may cause.

    Without a finding that explains it. There is no beginning to compare it with if it has always
    been like that; 0 below `LARGE_WAIT`, or if all ranks are observed.
    """
    newest = frame.usable_only()
    newest = newest.rows(np.arange(len(newest.steps)) >= len(newest.steps) - WINDOW_STEPS)
    active = any(one.until_unix_seconds is None for one in findings)
    if not (frame.unobserved_count or silent) or active or len(newest.steps) < WINDOW_STEPS:
        return 0.0
    share = np.fmin.reduce(newest.sync / newest.step, axis=1)
    share = float(np.median(share[np.isfinite(share)])) if np.isfinite(share).any() else 0.0
    return share if share > LARGE_WAIT else 0.0


def possible_cause(frame: StepFrame, silent: Collection[int], share: float) -> tuple[str, ...]:
    """Return a sentence about a share of the step that unobserved ranks may cause, if it is any."""
    if not share:
        return ()
    unseen = {*(frame.unobserved if frame.unobserved_count else ()), *silent}
    return (
        f"{ranks_named(unseen)} may be slow, and nobody would see it: all observed ranks spend at"
        f" least {share:.0%} of each step in collectives, for the exchange or for such a rank",
    )


def _group(ranks: Integers, job: Layout) -> Integers:
    """Return the gradient group of ranks: pp_stage * TP + t."""
    return ranks // (job.world // job.pipeline) * job.tensor + ranks % job.tensor


def _least_wait(frame: StepFrame, group: int, job: Layout) -> Floats:
    """Return (S,) the shortest time in collectives of the observed members of a group.

    The last arriver of a group does not wait, so this is the bare transfer time, unless the last
    arriver is not observed.
    """
    sync = frame.sync[:, _group(frame.ranks, job) == group]
    least = np.where(np.isfinite(sync), sync, np.inf).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least), least, np.nan)


def _longer(frame: StepFrame, wait: Floats) -> float:
    """Return how much longer than at its start a group waits, seconds, 0 if that may be chance."""
    early, newest = wait[:EARLY_STEPS], wait[-WINDOW_STEPS:]
    early, newest = early[np.isfinite(early)], newest[np.isfinite(newest)]
    if len(newest) < WINDOW_STEPS / 2 or len(early) < WINDOW_STEPS / 2:
        return 0.0
    excess = float(np.median(newest) - np.median(early))
    noise = NORMAL_CONSISTENCY * float(np.median(np.abs(newest - np.median(newest))))
    least = MINIMUM_WAIT * float(np.median(row_maximum(frame.step)))
    return excess if excess > max(least, SIGMAS * noise / np.sqrt(len(newest))) else 0.0


def _sentence(ranks: list[int], longer: float) -> str:
    who = f"{ranks_named(ranks)} is unobserved, peers wait for it"
    if len(ranks) > 1:
        who = f"{ranks_named(ranks)} are unobserved, peers wait for one of them"
    return (
        f"{who} or for a slower exchange: all observed ranks of the gradient group wait "
        f"{duration(longer)} a step longer than at the start, and none of them is slow"
    )
