"""Findings that depend only on agents' pages and on where ranks run: they are made once per look.

Between two looks at pages a job is reported again whenever its step times change, and comparing its
ports and GPUs again would take most of that time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankscope_analyzers.findings.finding import Finding, RankLocation
from rankscope_analyzers.intake.observed import BySeriesName, Observed
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.rank_locations import RankLocations

Locate = Callable[[Observed], RankLocations]
Find = Callable[[Observed, JobView], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class _Known:
    """Findings and their inputs: series of nodes, and locations of ranks."""

    series: Sequence[BySeriesName]
    locations: Mapping[int, RankLocation]
    findings: Sequence[Finding]


class PageFindings:
    """The findings of jobs from one look at pages; used by one thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Find], _Known] = {}
        self._located: tuple[Observed, Locate, RankLocations] | None = None

    def locations(self, locate: Locate, observed: Observed) -> RankLocations:
        """Return where ranks run, without looking again at what was just looked at."""
        known = self._located
        if known is None or known[0] is not observed or known[1] is not locate:
            self._located = known = observed, locate, locate(observed)
        return known[2]

    def of(self, find: Find, observed: Observed, job: JobView) -> Sequence[Finding]:
        """Return what a subject finds, without evaluating the same series again.

        Args:
            find: uses nothing of a job except its name, its nodes and the locations of its ranks.
            observed: series of the job's nodes.
            job: the job.
        """
        series = list(observed.by_node.values())
        known = self._known.get((job.job_id, find))
        if known is None or not (
            known.locations == job.locations
            and len(known.series) == len(series)
            and all(map(operator.is_, known.series, series))
        ):
            known = _Known(series, job.locations, list(find(observed, job)))
            self._known[job.job_id, find] = known
        return known.findings
