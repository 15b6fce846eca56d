"""Which series to keep if a page has too many: the least important families are dropped first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from rankscope_agent.contract.catalogue import declared
from rankscope_agent.contract.job_names import namespace_of
from rankscope_agent.contract.metrics import summary, training
from rankscope_agent.contract.model import HistogramValue, Sample, Scrape
from rankscope_agent.contract.sources import SOURCES, SUMMARY_IMPORTANCE

HISTOGRAM_EXTRA_SERIES = 3  # the +Inf bucket, _count and _sum

FAIR_JOBS, FAIR_PODS, FAIR_RANKS = 8, 8, 8
"""Jobs, and ranks of each, that precede further ones: those of an ordinary node, with a job on
every GPU or one on all. Together with the node's own series they fit on a page of 2,000 series, so
that no pod, whatever ranks it makes up, displaces GPUs, errors or earlier jobs. Each namespace gets
one job before any gets a second one, so that a namespace of many jobs, or of many pods that log,
only displaces its own later ones, and no other's job, however late that one arrives."""

ENDED_WAIT = 2
"""Turns that a job beyond the first eight of its namespace waits in addition once all of its ranks
have ended: what still runs is more urgent. Jobs of other namespaces do not count, or whoever makes
up ranks would displace the last values of others' jobs."""

RESOURCE = "resource"
"""Label of what the kubelet gave a container, which is limited to what a node has: such series
never wait, whoever owns the container."""


def _importance() -> Mapping[str, int]:
    """Number the families: within a source they are in the order of the catalogue."""
    ranked = [(source.importance, source.metrics) for source in SOURCES]
    ranked.append((SUMMARY_IMPORTANCE, (summary,)))
    named = (
        metric.name
        for _, modules in sorted(ranked, key=lambda pair: pair[0])
        for metric in declared(modules)
    )
    return {name: number for number, name in enumerate(dict.fromkeys(named))}


IMPORTANCE = _importance()


@dataclass(frozen=True, slots=True)
class Budgeted:
    """The part of a snapshot that fits on the page.

    Args:
        samples: in the order in which collectors yielded them.
        dropped: number of series left off, by collector.
    """

    samples: tuple[Sample, ...]
    dropped: Mapping[str, int]


def within_budget(scrapes: Sequence[Scrape], most: int | None) -> Budgeted:
    """Choose what fits, by family.

    Of one family, the later samples are left off; of less important families, all. So the selection
    does not change from page to page as values do, except when a job ends. What a namespace has of
    more jobs than others, or of more pods or ranks than a node runs, comes last, and of many jobs
    of one namespace those that have ended.

    Args:
        scrapes: of all collectors.
        most: number of series that fit; None for any number.
    """
    samples = tuple(sample for scrape in scrapes for sample in scrape.samples)
    sizes = [series_of(sample) for sample in samples]
    dropped = {scrape.collector: 0 for scrape in scrapes}
    if most is None or sum(sizes) <= most:
        return Budgeted(samples, dropped)
    kept = _chosen(samples, sizes, most)
    owners = (scrape.collector for scrape in scrapes for _ in scrape.samples)
    for number, owner in enumerate(owners):
        dropped[owner] += 0 if number in kept else sizes[number]
    return Budgeted(tuple(samples[number] for number in sorted(kept)), dropped)


def series_of(sample: Sample) -> int:
    """Return the number of series that a sample becomes on the page."""
    if isinstance(sample.value, HistogramValue):
        return len(sample.value.buckets) + HISTOGRAM_EXTRA_SERIES
    return 1


def _chosen(samples: Sequence[Sample], sizes: Sequence[int], left: int) -> set[int]:
    """Return the indices of kept samples; after the first that does not fit, none is kept."""
    turns = _turns(samples)
    order = sorted(
        range(len(samples)),
        key=lambda n: (turns[n], IMPORTANCE.get(samples[n].metric.name, len(IMPORTANCE))),
    )
    kept: set[int] = set()
    for index in order:
        left -= sizes[index]
        if left < 0:
            break
        kept.add(index)
    return kept


@dataclass(frozen=True, slots=True)
class _Owner:
    """The owner of a series; all empty if it is the node's own.

    Args:
        namespace: of the job or pod; empty outside of Kubernetes.
        job: its name; empty for series of a pod.
        pod: its name; empty for series of a job.
        rank: of the job.
    """

    namespace: str = ""
    job: str = ""
    pod: str = ""
    rank: str = ""


class _Places:
    """Numbers owners in the order in which they are seen: jobs with their ranks, and pods."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
        self._pods: dict[str, dict[str, int]] = defaultdict(dict)

    def see(self, owner: _Owner) -> None:
        """Number an owner, after those that have a number."""
        if owner.job:
            ranks = self._jobs[owner.namespace].setdefault(owner.job, {})
            if owner.rank:
                ranks.setdefault(owner.rank, len(ranks))
        else:
            self._pods[owner.namespace].setdefault(owner.pod, 0)

    def turns(self, ended: frozenset[tuple[str, str]]) -> Callable[[_Owner], int]:
        """Return a function that returns how many turns an owner has to wait.

        Args:
            ended: namespaces and names of the jobs that have ended.
        """
        jobs, pods = _numbered(self._jobs), _numbered(self._pods)
        further = (
            (namespace, job)
            for namespace, several in self._jobs.items()
            for job in islice(several, FAIR_JOBS, None)
        )
        waiting = ended.intersection(further)

        def turn(owner: _Owner) -> int:
            if not owner.job:
                return pods[owner.namespace, owner.pod] // FAIR_PODS
            job = owner.namespace, owner.job
            rank = self._jobs[owner.namespace][owner.job].get(owner.rank, 0)
            wait = ENDED_WAIT if job in waiting else 0
            return wait + max(jobs[job] // FAIR_JOBS, rank // FAIR_RANKS)

        return turn


def _numbered(namespaces: Mapping[str, Iterable[str]]) -> Mapping[tuple[str, str], int]:
    """Number what namespaces have, one of each before any second one."""
    places = [
        (place, namespace, name)
        for namespace, several in namespaces.items()
        for place, name in enumerate(several)
    ]
    places.sort(key=lambda one: one[0])
    return {(namespace, name): number for number, (_, namespace, name) in enumerate(places)}


NODE = _Owner()


def _turns(samples: Sequence[Sample]) -> list[int]:
    """Return how many turns each sample has to wait; the node's own wait for none.

    Jobs are in the training collector's order: those that run as they were first seen, then those
    that have ended. The order of others follows from names, which the owner of a job chooses.
    """
    owners = [_owner(sample) for sample in samples]
    places = _Places()
    for number in sorted(
        range(len(samples)), key=lambda n: samples[n].metric is not training.STEP_LATENCY
    ):
        if owners[number] != NODE:
            places.see(owners[number])
    turn = places.turns(_ended_jobs(samples, owners))
    return [0 if owner == NODE else turn(owner) for owner in owners]


def _ended_jobs(samples: Sequence[Sample], owners: Sequence[_Owner]) -> frozenset[tuple[str, str]]:
    """Return the namespaces and names of the jobs of which every rank that is known has ended."""
    alive: dict[tuple[str, str], bool] = defaultdict(bool)
    for sample, owner in zip(samples, owners, strict=True):
        if sample.metric is training.RANK_ALIVE:
            alive[owner.namespace, owner.job] |= sample.value != 0
    return frozenset(job for job, lives in alive.items() if not lives)


def _owner(sample: Sample) -> _Owner:
    """Return the owner of a series."""
    labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
    job, pod = labels.get("job_id", ""), labels.get("pod_name", "")
    if RESOURCE in labels:
        return NODE
    if job:
        return _Owner(namespace_of(job), job, "", labels.get("rank", ""))
    if pod:
        return _Owner(labels.get("pod_namespace", ""), "", pod)
    return NODE
