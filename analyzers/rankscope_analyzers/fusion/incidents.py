"""Fuse findings of all layers into incidents: cause before symptom, one culprit each. Pure.

A finding explains another if the table of causes allows it for their kinds, if both affect the same
ranks and if it was present in time. A finding that no other explains is a root. Every other finding
belongs to its best root; a root and all that it explains are one incident.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankscope_analyzers.findings.finding import Finding, Layer
from rankscope_analyzers.findings.location import (
    Locations,
    affected_ranks,
    breadth,
    complete_location,
)
from rankscope_analyzers.fusion.agreement import agreed
from rankscope_analyzers.fusion.causality import SLOW_INPUT, SLOW_RANK, STUCK, kind_of
from rankscope_analyzers.fusion.job_report import Incident
from rankscope_analyzers.layers.endings import ENDS
from rankscope_analyzers.layers.hang import HANG, ends_steps
from rankscope_analyzers.layers.hang_evidence import BEFORE_SECONDS

NOTICED_LATE_SECONDS = 120.0
"""A cause may be noticed this much later than its symptom: counters are scraped every 15 to 60
seconds and rates need two scrapes, while step records show the first slow step."""

GONE_BEFORE_SECONDS = 120.0
"""A cause may have ended this much before the steps became slow."""

TIMEOUT_SECONDS = 2400.0
"""Watchdogs report stuck jobs after 10 minutes with NCCL and 30 with gloo (PyTorch's defaults), so
the cause may have ended that long ago."""

ONCE: frozenset[Layer] = frozenset(("kernel", "gpu", "host", "pod"))
"""Layers whose faults start at one moment: if steps continue long after it, they do not need what
was lost."""

PROCESS_ENDINGS = frozenset(("oom_kill", "app", "collective_timeout"))
"""Ends of processes. A job that started long after one does not necessarily run without what ended,
unlike a job that started after a GPU was lost."""

OF_RANKS = SLOW_RANK | SLOW_INPUT
"""Symptoms whose ranks are listed from the worst one down; it is the one that sentences name."""

MAXIMUM_ECHO_COST = 0.5
"""Fraction of the first finding's cost below which a second one on other ranks may be its echo."""

MOST_RANKS = 0.5
"""Share of the ranks above which a cause of slow ranks explains a slow job."""

ALONE_CONFIDENCE: Mapping[str, float] = {"page": 0.8, "ticket": 0.6}
"""Confidence in a physical cause that step times do not confirm."""

AGREEMENT = 0.5
"""Factor on the remaining doubt for each additional layer that agrees: layers err independently."""

UNOBSERVED_LAYER = 0.93
"""Factor on the confidence for each layer that could have confirmed the cause and was not
observed."""

UNCONFIRMED = 0.95
"""Factor on the confidence if such layers were observed and none confirmed it."""

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
class FusionResult:
    """The incidents of a job, worst first, and findings that belong to none."""

    incidents: tuple[Incident, ...]
    observations: tuple[Finding, ...]


@dataclass(slots=True)
class _Case:
    """A root and what it explains.

    Args:
        timing: the finding of step times, None if there is none.
        rivals: what explains a member too, and nothing that is an incident of its own.
    """

    root: Finding
    timing: Finding | None
    members: list[Finding]
    rivals: list[Finding] = field(default_factory=list)


def fuse(
    timed: Sequence[Finding],
    others: Iterable[Finding],
    locations: Locations,
    observed: frozenset[Layer],
) -> FusionResult:
    """Return the incidents of one job.

    Args:
        timed: findings of step times, the one that explains most first.
        others: findings of all other layers, of this job or of the nodes that it runs on.
        locations: where its ranks run.
        observed: layers that were observed on the job's nodes.
    """
    everything = list(dict.fromkeys((*timed, *agreed(others))))
    affected = {finding: affected_ranks(finding.where, locations) for finding in everything}
    explaining = {
        kind: [cause for cause in everything if kind in kind_of(cause.kind).explains]
        for kind in {finding.kind for finding in everything}
    }
    causes = {
        finding: _causes(finding, explaining[finding.kind], affected, len(locations))
        for finding in everything
    }
    roots = _roots(everything, causes, affected)
    cases, rest = _cases(everything, roots, timed)
    rest = _without_rivals(cases, rest, roots, causes)
    cases = _merge_echoes(cases, timed, affected)
    incidents = [_incident(case, locations, observed) for case in cases]
    return FusionResult(tuple(sorted(incidents, key=by_urgency)), tuple(rest))


def _causes(
    symptom: Finding,
    explaining: Sequence[Finding],
    affected: Mapping[Finding, frozenset[int]],
    ranks: int,
) -> list[Finding]:
    """Return the findings that explain one directly, of those whose kinds explain its kind."""
    return [
        cause
        for cause in explaining
        if _share_ranks(cause, symptom, affected, ranks) and _in_time(cause, symptom)
    ]


def _share_ranks(
    cause: Finding, symptom: Finding, affected: Mapping[Finding, frozenset[int]], ranks: int
) -> bool:
    if kind_of(symptom.kind).seen_elsewhere or cause.where.whole_job:
        return True
    if symptom.kind == "global_slowdown" and "gpu_compute" in kind_of(cause.kind).explains:
        return len(affected[cause]) >= MOST_RANKS * ranks
    return symptom.where.whole_job or bool(affected[cause] & affected[symptom])


def _in_time(cause: Finding, symptom: Finding) -> bool:
    began, showed = cause.since_unix_seconds, symptom.since_unix_seconds
    if showed is None:
        return True
    if began is not None and began > showed + NOTICED_LATE_SECONDS:
        return False
    if began is not None and began < showed - BEFORE_SECONDS and _survived(cause, symptom):
        return False
    ended = cause.until_unix_seconds
    allowed = TIMEOUT_SECONDS if symptom.kind in STUCK else GONE_BEFORE_SECONDS
    return ended is None or ended >= showed - allowed


def _survived(cause: Finding, symptom: Finding) -> bool:
    """Return True if steps continued for long after a fault that starts at one moment.

    Faults that logs, links and NCCL show may last and stop a job later.
    """
    at_once = cause.kind in PROCESS_ENDINGS and symptom.kind == HANG
    return at_once or (cause.layer in ONCE and ends_steps(symptom))


def _roots(
    everything: Sequence[Finding],
    causes: Mapping[Finding, Sequence[Finding]],
    affected: Mapping[Finding, frozenset[int]],
) -> Mapping[Finding, Finding]:
    """Return the best root of each finding; a root is its own."""
    roots: dict[Finding, Finding] = {}
    # Causes are deeper than what they explain, so their roots are known already.
    for finding in sorted(everything, key=lambda one: -kind_of(one.kind).depth):
        candidates = [roots[cause] for cause in causes[finding]]
        roots[finding] = _best(candidates, finding, affected) if candidates else finding
    return roots


def _best(
    candidates: Iterable[Finding], symptom: Finding, affected: Mapping[Finding, frozenset[int]]
) -> Finding:
    """Return the root that explains a symptom: that of its worst rank before those of others."""
    worst = symptom.where.ranks[:1] if symptom.kind in OF_RANKS else ()

    def order(root: Finding) -> tuple[object, ...]:
        return not affected[root].issuperset(worst), *_rank_of_cause(root)

    return min(candidates, key=order)


def _rank_of_cause(cause: Finding) -> tuple[object, ...]:
    """Sort key of causes: narrow before wide, deep before shallow, then severe and early ones."""
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
    """Group findings by root; return separately those that neither cost time nor explain others."""
    groups: dict[Finding, list[Finding]] = defaultdict(list)
    for finding in everything:
        if roots[finding] is not finding:
            groups[roots[finding]].append(finding)
    cases: list[_Case] = []
    rest: list[Finding] = []
    for finding in everything:
        if roots[finding] is not finding:
            continue
        members = groups[finding]
        together = (finding, *members)
        timing = next((one for one in timed if one in together), None)
        if timing or any(kind_of(one.kind).reported_alone for one in together):
            cases.append(_Case(finding, timing, members))
        else:
            rest.extend(together)
    return cases, rest


def _without_rivals(
    cases: Sequence[_Case],
    rest: Sequence[Finding],
    roots: Mapping[Finding, Finding],
    causes: Mapping[Finding, Sequence[Finding]],
) -> list[Finding]:
    """Return the rest without what explains a member of a case too, which joins that case."""
    homes = {case.root: case for case in cases}
    found = {
        roots[cause]: homes[roots[symptom]]
        for symptom, known in causes.items()
        for cause in known
        if roots[symptom] in homes
    }
    kept: list[Finding] = []
    for finding in rest:
        home = found.get(roots[finding])
        (home.rivals if home else kept).append(finding)
    return kept


def _merge_echoes(
    cases: Sequence[_Case],
    timed: Sequence[Finding],
    affected: Mapping[Finding, frozenset[int]],
) -> list[_Case]:
    """Merge findings of step times without a physical cause into the one that outweighs them."""
    first = next((one for one in timed if one.kind != HANG), None)
    main = next((case for case in cases if first in (case.root, *case.members)), None)
    if first is None or main is None:
        return list(cases)
    kept = []
    for case in cases:
        bare = case is not main and case.root in timed and not case.members
        bare = bare and case.root.kind != HANG
        if bare and _is_echo(case.root, first, affected):
            main.members.append(case.root)
        else:
            kept.append(case)
    return kept


def _is_echo(finding: Finding, first: Finding, affected: Mapping[Finding, frozenset[int]]) -> bool:
    ended, began = finding.until_unix_seconds, first.since_unix_seconds
    if ended is not None and began is not None and ended < began:  # it was over before that
        return False
    inside = bool(affected[finding] & affected[first]) or not finding.where.ranks
    return inside or finding.known_cost.gpu_hours < MAXIMUM_ECHO_COST * first.known_cost.gpu_hours


def _incident(case: _Case, locations: Locations, observed: frozenset[Layer]) -> Incident:
    findings = sorted(case.members, key=lambda one: (-kind_of(one.kind).depth, one.summary))
    symptom = case.timing or case.root
    ranks = symptom.where.ranks or tuple(sorted(affected_ranks(case.root.where, locations)))
    wide = symptom.where.whole_job and case.root.where.whole_job
    both = (case.root, *findings)
    every = (*both, *case.rivals)
    starts = [
        s.since_unix_seconds for s in (case.root, symptom) if s.since_unix_seconds is not None
    ]
    return Incident(
        cause=case.root,
        findings=tuple(findings),
        where=replace(case.root.where)
        if wide
        else complete_location(ranks, locations, case.root.where),
        severity="page" if any(one.severity == "page" for one in every) else "ticket",
        summary=_summary(case.root, symptom),
        action=case.root.action,
        runbook=case.root.runbook,
        confidence=_confidence(case, symptom, observed),
        cost=case.timing.cost if case.timing else None,
        since_unix_seconds=min(starts, default=None),
        # What ended the job did not end with it.
        until_unix_seconds=None
        if any(one.kind in ENDS for one in both)
        else symptom.until_unix_seconds,
        timing=case.timing,
        other_causes=tuple(case.rivals),
    )


def _summary(cause: Finding, symptom: Finding) -> str:
    if cause is symptom:
        return cause.summary
    return f"{symptom.summary}, because {cause.summary}"


def _confidence(case: _Case, symptom: Finding, observed: frozenset[Layer]) -> float:
    layers = {layer for finding in (case.root, *case.members) for layer in finding.layers}
    confidence = case.timing.confidence if case.timing else None
    confidence = ALONE_CONFIDENCE[case.root.severity] if confidence is None else confidence
    confidence = 1.0 - (1.0 - confidence) * AGREEMENT ** (len(layers) - 1)
    could = CONFIRMING.get(symptom.kind, ())
    for layer in could:
        if layer not in observed:
            confidence *= UNOBSERVED_LAYER
    if could and len(layers) == 1 and observed.intersection(could):
        confidence *= UNCONFIRMED
    return min(HIGHEST_CONFIDENCE, confidence)


def by_urgency(incident: Incident) -> tuple[object, ...]:
    """Sort key of incidents: a hang, what ended the job, active ones; by severity, cost and time.

    Those that lasted until the job ended count as active: none of them recovered.
    """
    lost = incident.cost.gpu_hours if incident.cost else 0.0
    return (
        not incident.stands,
        not incident.ended_job,
        incident.until_unix_seconds is not None and not incident.ended_with_job,
        incident.severity != "page",
        -lost,
        incident.since_unix_seconds or 0.0,
        incident.summary,
    )
