"""Which series to keep if a page has too many: the least important families are dropped first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.catalogue import declared
from rankscope_agent.contract.metrics import summary, training
from rankscope_agent.contract.model import HistogramValue, Sample, Scrape
from rankscope_agent.contract.sources import SOURCES, SUMMARY_IMPORTANCE

HISTOGRAM_EXTRA_SERIES = 3  # the +Inf bucket, _count and _sum

FAIR_JOBS, FAIR_RANKS = 8, 8
"""Jobs, and ranks of each, that come before further ones: those of an ordinary node, a job on every
GPU or one on all. They and what is the node's own fit on a page of 2,000 series, so that no pod,
whatever ranks it makes up, keeps GPUs, errors or the jobs that were there before off the page."""


def _importance() -> Mapping[str, int]:
    """Number the families: within a source they stand in the order of the catalogue."""
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
    """What of a snapshot goes on the page.

    Args:
        samples: in the order in which collectors yielded them.
        dropped: series left off, by collector.
    """

    samples: tuple[Sample, ...]
    dropped: Mapping[str, int]


def within_budget(scrapes: Sequence[Scrape], most: int | None) -> Budgeted:
    """Choose what fits, by family.

    Of one family, the later samples are left off; of the less important ones, all. So which series
    are there does not change from page to page as values do. What is of more jobs or ranks than a
    node runs comes after everything else.

    Args:
        scrapes: of all collectors.
        most: series that fit, None for any number.
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
    """Count the series that a sample becomes on the page."""
    if isinstance(sample.value, HistogramValue):
        return len(sample.value.buckets) + HISTOGRAM_EXTRA_SERIES
    return 1


def _chosen(samples: Sequence[Sample], sizes: Sequence[int], left: int) -> set[int]:
    """Return the places of what is kept; once one does not fit, nothing further does."""
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


def _turns(samples: Sequence[Sample]) -> list[int]:
    """Return of each sample how many turns its job or rank has to wait; the node's own has none.

    Jobs stand in the order in which the training collector first saw them; the order of others
    follows from names, which whoever starts a job may choose.
    """
    owners = [_owner(sample) for sample in samples]
    seen: dict[str, dict[str, int]] = {}
    for number in sorted(
        range(len(samples)), key=lambda n: samples[n].metric is not training.STEP_LATENCY
    ):
        job, rank = owners[number]
        ranks = seen.setdefault(job, {}) if job else {}
        if rank:
            ranks.setdefault(rank, len(ranks))
    numbers = {job: number for number, job in enumerate(seen)}
    return [
        max(numbers[job] // FAIR_JOBS, seen[job].get(rank, 0) // FAIR_RANKS) if job else 0
        for job, rank in owners
    ]


def _owner(sample: Sample) -> tuple[str, str]:
    """Return the job and the rank that a series is of, empty where it is of none."""
    labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
    return labels.get("job_id", ""), labels.get("rank", "")
