"""Ranks whose transport variables differ from those of the job's other ranks, as findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rankscope_agent.contract.metrics import pods
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.environment_skew import EnvironmentDifference
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.text.name_lists import ranks_named

READS: tuple[Metric, ...] = (pods.RANK_ENVIRONMENT_INFO,)

KINDS = frozenset(("environment_differs",))


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield the ranks whose variables have another hash than those of most ranks."""
    hashes = {
        rank: series.labels.get("hash", "")
        for rank, series in by_rank(observed, pods.RANK_ENVIRONMENT_INFO, job.job_id).items()
    }
    if len(set(hashes.values())) < 2:
        return
    ((usual, count),) = Counter(hashes.values()).most_common(1)
    odd = tuple(sorted(rank for rank, found in hashes.items() if found != usual))
    sentence = f"transport variables of {ranks_named(odd)} are not those of {count} other ranks"
    yield _finding(job.job_id, odd, sentence, len(odd))


def of_differences(differences: Iterable[EnvironmentDifference]) -> Iterator[Finding]:
    """Yield differences in known variables; those that decide how ranks connect."""
    for found in differences:
        if found.weight == "fail":
            odd = tuple(sorted(rank for _, ranks in found.values[1:] for rank in ranks))
            yield _finding(found.job_id, odd, found.summary, len(odd))


def _finding(job_id: str, odd: tuple[int, ...], sentence: str, count: int) -> Finding:
    name = pods.RANK_ENVIRONMENT_INFO.name
    evidence = Evidence(name, float(count), 0.0, "count", "ranks that differ from most others")
    return series_finding(
        "environment_differs", "environment", job_id, Where(ranks=odd), sentence, (evidence,)
    )
