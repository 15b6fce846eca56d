"""Whether ranks belong to the job that they name: claims of pods in other namespaces are rejected.

Agents name the jobs of pods within their namespaces. Those of earlier versions did not, and a
compromised one need not: the `pod_namespace` of a rank has to be that of its job. Outside of pods
there is no namespace and nothing to compare, unless the job is one of pods. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_agent.contract.job_names import is_job_id, namespace_of
from rankscope_agent.contract.metrics import training
from rankscope_analyzers.intake.observed import BySeriesName, Observed, Series
from rankscope_analyzers.text import sanitize
from rankscope_analyzers.text.name_lists import named, ranks_named

OWNED = tuple(one for one in CATALOGUE if {"job_id", "pod_namespace"} <= set(one.labels))
"""Series with their job and the namespace of their pod."""

MOST_NOTES = 64
"""Sentences about what is refused; invented names could cause any number."""

_RANK = re.compile(r"[0-9]{1,7}")

Source = tuple[str, str, str]
"""The source (a node, or an agent's address), and the job and rank that it reports on."""

Notes = Mapping[str, Sequence[str]]
"""Sentences about what was refused of a job, by the name of the job; those of jobs that are refused
completely are under the empty name."""


@dataclass(frozen=True, slots=True)
class OwnershipClaim:
    """A rank, as an agent reports it.

    Args:
        source: the node, or the address of its agent.
        rank: as text, since it is only compared.
        namespace: of its pod, empty if it is in none or in an unknown one.
        in_pod: True if it claims to be in a pod.
    """

    source: str
    job_id: str
    rank: str
    namespace: str
    in_pod: bool

    @property
    def key(self) -> Source:
        """Return its identity."""
        return self.source, self.job_id, self.rank


def claims_of(source: str, ranks: Iterable[Mapping[str, Any]]) -> Iterator[OwnershipClaim]:
    """Yield the ranks of an agent's /api/v1/ranks."""
    for rank in ranks:
        namespace = rank.get("pod_namespace")
        yield OwnershipClaim(
            source,
            str(rank.get("job_id")),
            str(rank.get("rank")),
            namespace if isinstance(namespace, str) else "",
            bool(rank.get("pod_uid")),
        )


def refused(claims: Iterable[OwnershipClaim]) -> Sequence[OwnershipClaim]:
    """Return the claims that are not trusted."""
    all_claims = list(claims)
    of_pods = {one.job_id for one in all_claims if _is_own(one)}
    return [one for one in all_claims if _is_foreign(one, of_pods)]


def is_believed(job_id: str, namespace: object) -> bool:
    """Return True if a process of a pod's namespace may belong to a job, from that alone."""
    return is_job_id(job_id) and (not namespace or namespace_of(job_id) == namespace)


def _is_own(one: OwnershipClaim) -> bool:
    return bool(one.namespace) and namespace_of(one.job_id) == one.namespace


def _is_foreign(one: OwnershipClaim, of_pods: set[str]) -> bool:
    if one.namespace or not is_job_id(one.job_id):
        return not is_believed(one.job_id, one.namespace)
    # A job of pods has no ranks outside of them; older agents knew no name for some pods.
    return one.job_id in of_pods and not one.in_pod


@dataclass(frozen=True, slots=True)
class PageContext:
    """What is known of agents apart from their reports on ranks.

    Args:
        names: the node of each, by its address.
        placed: the node of each that an API server knows, whatever it claims.
        refused: returns the ranks that are not trusted according to agents' pages, by node. Called
            only if an agent's response lacks the namespaces of its ranks.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    placed: Mapping[str, str] = field(default_factory=dict)
    refused: Callable[[], frozenset[Source]] = frozenset


NO_CONTEXT = PageContext()


@dataclass(frozen=True, slots=True)
class Believed:
    """The series that remain.

    Args:
        ranks: those that were refused, by node.
    """

    observed: Observed
    ranks: frozenset[Source] = frozenset()
    notes: Notes = field(default_factory=dict)


def believed(observed: Observed) -> Believed:
    """Return the series without those of refused ranks."""
    claims = [_claim(series) for series in _owned(observed)]
    foreign = refused(claims)
    if not foreign:
        return Believed(observed)
    mine = set(claims) - set(foreign)
    rules = _rules(foreign, mine)
    nodes = {one.source for one in foreign}
    kept = {
        node: _without(found, rules) if node in nodes else found
        for node, found in observed.by_node.items()
    }
    sentence = notes(foreign, {one.job_id for one in mine})
    return Believed(replace(observed, by_node=kept), rules.ranks, sentence)


def _owned(observed: Observed) -> Iterator[Series]:
    found = chain.from_iterable(observed.of(metric) for metric in OWNED)
    return (series for series in found if series.labels.get("job_id"))


def _claim(series: Series) -> OwnershipClaim:
    labels = series.labels
    # Of the series about ranks and devices only the ranks' show whether they are in a pod.
    is_rank = series.name == training.RANK_INFO.name
    return OwnershipClaim(
        series.node,
        labels.get("job_id", ""),
        labels.get("rank", ""),
        labels.get("pod_namespace", ""),
        bool(labels.get("pod_uid")) or not is_rank,
    )


@dataclass(frozen=True, slots=True)
class _Rules:
    """What to leave out.

    Args:
        claims: series that claim a rank, with the namespace that they claim it from.
        ranks: those whose every claim on the node is refused.
        jobs: nodes and jobs of which every claim is refused.
    """

    claims: frozenset[tuple[Source, str]]
    ranks: frozenset[Source]
    jobs: frozenset[tuple[str, str]]

    def leave(self, series: Series) -> bool:
        """Return True if a series is to be left out."""
        job = series.labels.get("job_id", "")
        if not job:
            return False
        if (series.node, job) in self.jobs:
            return True
        key = (series.node, job, series.labels.get("rank", ""))
        if key in self.ranks:
            return True
        return "pod_namespace" in series.labels and (
            (key, series.labels["pod_namespace"]) in self.claims
        )


def _rules(foreign: Iterable[OwnershipClaim], mine: Iterable[OwnershipClaim]) -> _Rules:
    own = {one.key for one in mine}
    jobs = {(source, job) for source, job, _ in own}
    return _Rules(
        claims=frozenset((one.key, one.namespace) for one in foreign),
        ranks=frozenset(one.key for one in foreign) - own,
        jobs=frozenset((one.source, one.job_id) for one in foreign) - jobs,
    )


def _without(found: BySeriesName, rules: _Rules) -> BySeriesName:
    return {
        name: [one for one in several if not rules.leave(one)] for name, several in found.items()
    }


def notes(foreign: Iterable[OwnershipClaim], jobs: Collection[str]) -> Notes:
    """Return a sentence for each job and namespace that claims it without right.

    Args:
        foreign: the claims that are refused.
        jobs: those that have ranks of their own.
    """
    by_job: dict[tuple[str, str], list[OwnershipClaim]] = defaultdict(list)
    for one in foreign:
        by_job[one.job_id, one.namespace].append(one)
    found: dict[str, list[str]] = defaultdict(list)
    for (job, namespace), several in sorted(by_job.items())[:MOST_NOTES]:
        known = job in jobs
        found[job if known else ""].append(_sentence(job, namespace, several))
    return found


def _sentence(job: str, namespace: str, several: Sequence[OwnershipClaim]) -> str:
    ranks = {int(one.rank) for one in several if _RANK.fullmatch(one.rank)}
    what = ranks_named(ranks) if ranks else "series"
    nodes = named(sorted({sanitize.name(one.source) for one in several}), "node")
    who = f"pods of namespace {sanitize.name(namespace)}" if namespace else "processes of no pod"
    sentence = f"{what} of job {sanitize.name(job)} on {nodes}"
    return f"{sentence}: {who} speak for it and are not believed"
