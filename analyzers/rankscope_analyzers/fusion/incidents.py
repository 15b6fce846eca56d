"""From findings of all layers to incidents: cause before symptom, one culprit for each.

A finding explains another if the table of causes says that its kind can, if it touches the same
ranks and if it was there in time. What nothing explains is a root; every other finding belongs to
its best root, and a root with all that it explains is one incident. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_analyzers.findings.finding import Finding, Layer
from rankscope_analyzers.findings.location import Locations, breadth, full, ranks_touched
from rankscope_analyzers.fusion.causality import STUCK, kind_of
from rankscope_analyzers.fusion.job_report import Incident

NOTICED_LATE_SECONDS = 120.0
"""A cause may be noticed this much after what it brings about: counters are scraped every 15 to 60
seconds and rates need two scrapes, while step records tell the first slow step."""

GONE_BEFORE_SECONDS = 120.0
"""What slows steps must still be there when they are slow, give or take as much."""

TIMEOUT_SECONDS = 2400.0
"""Jobs that are stuck are noticed by watchdogs, after 10 minutes with NCCL and 30 with gloo
(PyTorch's defaults), so that the cause may lie so far back."""

WORTH_ITS_OWN = 0.5
"""A second finding on other ranks that costs less than this part of the first may be its echo."""

EVERYBODY = 0.5
"""Part of the ranks from which on a cause of slow ranks is one of a slow job."""

ALONE_CONFIDENCE: Mapping[str, float] = {"page": 0.8, "ticket": 0.6}
"""Confidence of a physical cause that no step time confirms, as nobody can say what it costs."""

AGREEMENT = 0.5
"""Doubt that is left by one more layer that says the same: its faults have other reasons."""

NOT_LOOKED = 0.93
"""Confidence that is left by a layer that could have confirmed it and was not seen."""

NOTHING_SEEN = 0.95
"""Confidence that is left if such layers were seen and none found a reason."""

HIGHEST_CONFIDENCE = 0.99

CONFIRMING: Mapping[str, tuple[Layer, ...]] = {
    "gpu_compute": ("gpu", "host"),
    "host_transient": ("host",),
    "data_loader": ("host",),
    "storage_checkpoint": ("host",),
    "network_link": ("link", "nccl"),
    "global_slowdown": ("nccl", "link"),
    "missing_rank": ("kernel", "pod"),
}
"""Layers that usually show the physical cause of what step times show."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is wrong with a job, worst first, and what was seen besides."""

    incidents: tuple[Incident, ...]
    observations: tuple[Finding, ...]


@dataclass(slots=True)
class _Case:
    """A root and what it explains.

    Args:
        timing: what step times show of it, None where they show nothing.
    """

    root: Finding
    timing: Finding | None
    members: list[Finding]


def fuse(
    timed: Sequence[Finding],
    others: Iterable[Finding],
    locations: Locations,
    observed: frozenset[Layer],
) -> Judged:
    """Return the incidents of one job.

    Args:
        timed: findings of step times, the one that explains most first.
        others: those of all other layers, of this job or of the nodes that it runs on.
        locations: where its ranks run.
        observed: layers that could be looked at on the job's nodes.
    """
    everything = list(dict.fromkeys((*timed, *others)))
    touched = {found: ranks_touched(found.where, locations) for found in everything}
    causes = {found: _causes(found, everything, touched, len(locations)) for found in everything}
    roots = _roots(everything, causes)
    cases, rest = _cases(everything, roots, timed)
    cases = _echoes(cases, timed, touched)
    incidents = [_incident(case, locations, observed) for case in cases]
    return Judged(tuple(sorted(incidents, key=_weight)), tuple(rest))


def _causes(
    symptom: Finding,
    everything: Sequence[Finding],
    touched: Mapping[Finding, frozenset[int]],
    ranks: int,
) -> list[Finding]:
    """Return the findings that explain one directly."""
    return [
        cause
        for cause in everything
        if symptom.kind in kind_of(cause.kind).explains
        and _together(cause, symptom, touched, ranks)
        and _in_time(cause, symptom)
    ]


def _together(
    cause: Finding, symptom: Finding, touched: Mapping[Finding, frozenset[int]], ranks: int
) -> bool:
    if kind_of(symptom.kind).elsewhere or cause.where.whole_job:
        return True
    if symptom.kind == "global_slowdown" and "gpu_compute" in kind_of(cause.kind).explains:
        return len(touched[cause]) >= EVERYBODY * ranks
    return symptom.where.whole_job or bool(touched[cause] & touched[symptom])


def _in_time(cause: Finding, symptom: Finding) -> bool:
    began, showed = cause.since_unix_seconds, symptom.since_unix_seconds
    if showed is None:
        return True
    if began is not None and began > showed + NOTICED_LATE_SECONDS:
        return False
    ended = cause.until_unix_seconds
    allowed = TIMEOUT_SECONDS if symptom.kind in STUCK else GONE_BEFORE_SECONDS
    return ended is None or ended >= showed - allowed


def _roots(
    everything: Sequence[Finding], causes: Mapping[Finding, Sequence[Finding]]
) -> Mapping[Finding, Finding]:
    """Return the best root of each finding; a root is its own."""
    roots: dict[Finding, Finding] = {}
    # Causes are deeper than what they explain, so theirs are known when they are asked for.
    for found in sorted(everything, key=lambda one: -kind_of(one.kind).depth):
        candidates = [roots[cause] for cause in causes[found]]
        roots[found] = min(candidates, key=_rank_of_cause) if candidates else found
    return roots


def _rank_of_cause(cause: Finding) -> tuple[object, ...]:
    """Order causes: narrow before wide, deep before shallow, severe, early."""
    since = cause.since_unix_seconds
    return (
        breadth(cause.where),
        -kind_of(cause.kind).depth,
        cause.severity != "page",
        since if since is not None else float("inf"),
        cause.summary,
    )


def _cases(
    everything: Sequence[Finding],
    roots: Mapping[Finding, Finding],
    timed: Sequence[Finding],
) -> tuple[list[_Case], list[Finding]]:
    """Put findings together by root; what neither hurts nor explains anything is left over."""
    groups: dict[Finding, list[Finding]] = defaultdict(list)
    for found in everything:
        if roots[found] is not found:
            groups[roots[found]].append(found)
    cases: list[_Case] = []
    rest: list[Finding] = []
    for found in everything:
        if roots[found] is not found:
            continue
        members = groups[found]
        together = (found, *members)
        timing = next((one for one in timed if one in together), None)
        if timing or any(kind_of(one.kind).alone for one in together):
            cases.append(_Case(found, timing, members))
        else:
            rest.extend(together)
    return cases, rest


def _echoes(
    cases: Sequence[_Case],
    timed: Sequence[Finding],
    touched: Mapping[Finding, frozenset[int]],
) -> list[_Case]:
    """Add findings of step times that no physical cause backs to the one that outweighs them."""
    first = next(iter(timed), None)
    main = next((case for case in cases if first in (case.root, *case.members)), None)
    if first is None or main is None:
        return list(cases)
    kept = []
    for case in cases:
        bare = case is not main and case.root in timed and not case.members
        if bare and _is_echo(case.root, first, touched):
            main.members.append(case.root)
        else:
            kept.append(case)
    return kept


def _is_echo(found: Finding, first: Finding, touched: Mapping[Finding, frozenset[int]]) -> bool:
    ended, began = found.until_unix_seconds, first.since_unix_seconds
    if ended is not None and began is not None and ended < began:  # it was over before that
        return False
    inside = bool(touched[found] & touched[first]) or not found.where.ranks
    return inside or found.known_cost.gpu_hours < WORTH_ITS_OWN * first.known_cost.gpu_hours


def _incident(case: _Case, locations: Locations, observed: frozenset[Layer]) -> Incident:
    signals = sorted(case.members, key=lambda one: (-kind_of(one.kind).depth, one.summary))
    symptom = case.timing or case.root
    ranks = symptom.where.ranks or tuple(sorted(ranks_touched(case.root.where, locations)))
    wide = symptom.where.whole_job and case.root.where.whole_job
    both = (case.root, *signals)
    starts = [
        s.since_unix_seconds for s in (case.root, symptom) if s.since_unix_seconds is not None
    ]
    return Incident(
        cause=case.root,
        signals=tuple(signals),
        where=replace(case.root.where) if wide else full(ranks, locations, case.root.where),
        severity="page" if any(one.severity == "page" for one in both) else "ticket",
        summary=_summary(case.root, symptom),
        action=case.root.action,
        runbook=case.root.runbook,
        confidence=_confidence(case, symptom, observed),
        cost=case.timing.cost if case.timing else None,
        since_unix_seconds=min(starts, default=None),
        until_unix_seconds=symptom.until_unix_seconds,
        timing=case.timing,
    )


def _summary(cause: Finding, symptom: Finding) -> str:
    if cause is symptom:
        return cause.summary
    return f"{symptom.summary}, because {cause.summary}"


def _confidence(case: _Case, symptom: Finding, observed: frozenset[Layer]) -> float:
    layers = {found.layer for found in (case.root, *case.members)}
    sure = case.timing.confidence if case.timing else None
    sure = ALONE_CONFIDENCE[case.root.severity] if sure is None else sure
    sure = 1.0 - (1.0 - sure) * AGREEMENT ** (len(layers) - 1)
    could = CONFIRMING.get(symptom.kind, ())
    for layer in could:
        if layer not in observed:
            sure *= NOT_LOOKED
    if could and len(layers) == 1 and observed.intersection(could):
        sure *= NOTHING_SEEN
    return min(HIGHEST_CONFIDENCE, sure)


def _weight(incident: Incident) -> tuple[object, ...]:
    """Order incidents: what goes on first, then what costs or is known to hurt, then by time."""
    lost = incident.cost.gpu_hours if incident.cost else 0.0
    return (
        incident.until_unix_seconds is not None,
        incident.severity != "page",
        -lost,
        incident.since_unix_seconds or 0.0,
        incident.summary,
    )
