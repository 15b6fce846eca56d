"""From signals of all layers to incidents: cause before symptom, one culprit for each.

A signal explains another if the table of causes says that its kind can, if it touches the same
ranks and if it was there in time. What nothing explains is a root; every other signal belongs to
its best root, and a root with all that it explains is one incident. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.findings.signals import Layer, Signal
from rankscope_analyzers.findings.whereabouts import Places, breadth, full, ranks_touched
from rankscope_analyzers.fusion.causality import STUCK, kind_of
from rankscope_analyzers.fusion.job_report import Incident
from rankscope_analyzers.fusion.training_signals import of_finding

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
    observations: tuple[Signal, ...]


@dataclass(slots=True)
class _Case:
    """A root and what it explains."""

    root: Signal
    finding: Finding | None
    members: list[Signal]


def fuse(
    findings: Sequence[Finding],
    signals: Iterable[Signal],
    places: Places,
    observed: frozenset[Layer],
) -> Judged:
    """Return the incidents of one job.

    Args:
        findings: of step times, the one that explains most first.
        signals: of all other layers, of this job or of the nodes that it runs on.
        places: where its ranks run.
        observed: layers that could be looked at on the job's nodes.
    """
    timed = {of_finding(found, places): found for found in findings}
    everything = [*timed, *dict.fromkeys(signals)]
    touched = {signal: ranks_touched(signal.where, places) for signal in everything}
    causes = {signal: _causes(signal, everything, touched, len(places)) for signal in everything}
    roots = _roots(everything, causes)
    cases, rest = _cases(everything, roots, timed)
    cases = _echoes(cases, timed, touched)
    incidents = [_incident(case, timed, places, observed) for case in cases]
    return Judged(tuple(sorted(incidents, key=_weight)), tuple(rest))


def _causes(
    symptom: Signal,
    everything: Sequence[Signal],
    touched: Mapping[Signal, frozenset[int]],
    ranks: int,
) -> list[Signal]:
    """Return the signals that explain one directly."""
    return [
        cause
        for cause in everything
        if symptom.kind in kind_of(cause.kind).explains
        and _together(cause, symptom, touched, ranks)
        and _in_time(cause, symptom)
    ]


def _together(
    cause: Signal, symptom: Signal, touched: Mapping[Signal, frozenset[int]], ranks: int
) -> bool:
    if kind_of(symptom.kind).elsewhere or cause.where.whole_job:
        return True
    if symptom.kind == "global_slowdown" and "gpu_compute" in kind_of(cause.kind).explains:
        return len(touched[cause]) >= EVERYBODY * ranks
    return symptom.where.whole_job or bool(touched[cause] & touched[symptom])


def _in_time(cause: Signal, symptom: Signal) -> bool:
    began, showed = cause.since_unix_seconds, symptom.since_unix_seconds
    if showed is None:
        return True
    if began is not None and began > showed + NOTICED_LATE_SECONDS:
        return False
    ended = cause.until_unix_seconds
    allowed = TIMEOUT_SECONDS if symptom.kind in STUCK else GONE_BEFORE_SECONDS
    return ended is None or ended >= showed - allowed


def _roots(
    everything: Sequence[Signal], causes: Mapping[Signal, Sequence[Signal]]
) -> Mapping[Signal, Signal]:
    """Return the best root of each signal; a root is its own."""
    found: dict[Signal, Signal] = {}
    # Causes are deeper than what they explain, so theirs are known when they are asked for.
    for signal in sorted(everything, key=lambda one: -kind_of(one.kind).depth):
        candidates = [found[cause] for cause in causes[signal]]
        found[signal] = min(candidates, key=_rank_of_cause) if candidates else signal
    return found


def _rank_of_cause(signal: Signal) -> tuple[object, ...]:
    """Order causes: narrow before wide, deep before shallow, severe, early."""
    since = signal.since_unix_seconds
    return (
        breadth(signal.where),
        -kind_of(signal.kind).depth,
        signal.severity != "page",
        since if since is not None else float("inf"),
        signal.summary,
    )


def _cases(
    everything: Sequence[Signal],
    roots: Mapping[Signal, Signal],
    timed: Mapping[Signal, Finding],
) -> tuple[list[_Case], list[Signal]]:
    """Put signals together by root; what neither hurts nor explains anything is left over."""
    groups: dict[Signal, list[Signal]] = defaultdict(list)
    for signal in everything:
        if roots[signal] is not signal:
            groups[roots[signal]].append(signal)
    cases: list[_Case] = []
    rest: list[Signal] = []
    for signal in everything:
        if roots[signal] is not signal:
            continue
        members = groups[signal]
        weighty = (signal, *members)
        if any(one in timed or kind_of(one.kind).alone for one in weighty):
            found = next((timed[one] for one in timed if one in weighty), None)
            cases.append(_Case(signal, found, members))
        else:
            rest.extend(weighty)
    return cases, rest


def _echoes(
    cases: Sequence[_Case],
    timed: Mapping[Signal, Finding],
    touched: Mapping[Signal, frozenset[int]],
) -> list[_Case]:
    """Add findings of step times that no physical cause backs to the one that outweighs them."""
    first = next(iter(timed), None)
    main = next((case for case in cases if first in (case.root, *case.members)), None)
    if first is None or main is None:
        return list(cases)
    kept = []
    for case in cases:
        bare = case is not main and case.root in timed and not case.members
        if bare and _is_echo(case.root, first, timed, touched):
            main.members.append(case.root)
        else:
            kept.append(case)
    return kept


def _is_echo(
    signal: Signal,
    first: Signal,
    timed: Mapping[Signal, Finding],
    touched: Mapping[Signal, frozenset[int]],
) -> bool:
    mine, its = timed[signal], timed[first]
    ended, began = mine.until_unix_seconds, its.since_unix_seconds
    if ended is not None and ended < began:  # it was over before the other began
        return False
    inside = bool(touched[signal] & touched[first]) or not mine.subject.ranks
    return inside or mine.cost.gpu_hours < WORTH_ITS_OWN * its.cost.gpu_hours


def _incident(
    case: _Case,
    timed: Mapping[Signal, Finding],
    places: Places,
    observed: frozenset[Layer],
) -> Incident:
    signals = sorted(case.members, key=lambda one: (-kind_of(one.kind).depth, one.summary))
    found = case.finding
    symptom = next((one for one in timed if timed[one] is found), case.root) if found else case.root
    ranks = symptom.where.ranks or tuple(sorted(ranks_touched(case.root.where, places)))
    wide = symptom.where.whole_job and case.root.where.whole_job
    both = (case.root, *signals)
    starts = [
        s.since_unix_seconds for s in (case.root, symptom) if s.since_unix_seconds is not None
    ]
    return Incident(
        cause=case.root,
        signals=tuple(signals),
        where=replace(case.root.where) if wide else full(ranks, places, case.root.where),
        severity="page" if any(one.severity == "page" for one in both) else "ticket",
        summary=_summary(case.root, symptom),
        action=case.root.action,
        runbook=case.root.runbook,
        confidence=_confidence(case, symptom, observed),
        cost=found.cost if found else None,
        since_unix_seconds=min(starts, default=None),
        until_unix_seconds=symptom.until_unix_seconds,
        finding=found,
    )


def _summary(cause: Signal, symptom: Signal) -> str:
    if cause is symptom:
        return cause.summary
    return f"{symptom.summary}, because {cause.summary}"


def _confidence(case: _Case, symptom: Signal, observed: frozenset[Layer]) -> float:
    layers = {signal.layer for signal in (case.root, *case.members)}
    sure = case.finding.confidence if case.finding else ALONE_CONFIDENCE[case.root.severity]
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
