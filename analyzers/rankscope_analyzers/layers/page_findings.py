"""Findings that depend on agents' pages and on where ranks run alone: they are made once a look.

Between two looks at pages a job is reported anew whenever its step times say something else, and
comparing its ports and GPUs again would take most of that time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankscope_analyzers.findings.finding import Finding, RankLocation
from rankscope_analyzers.intake.observed import BySeriesName, Observed
from rankscope_analyzers.layers.job_view import JobView

Find = Callable[[Observed, JobView], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class _Known:
    """Findings, and what they were made of: series of nodes, and places of ranks."""

    series: Sequence[BySeriesName]
    locations: Mapping[int, RankLocation]
    findings: Sequence[Finding]


class PageFindings:
    """The findings of jobs that one look at pages has led to; used by one thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Find], _Known] = {}

    def of(self, find: Find, observed: Observed, job: JobView) -> Sequence[Finding]:
        """Return what a subject finds, without looking again at the same series.

        Args:
            find: looks at nothing of a job but its name, its nodes and the places of its ranks.
            observed: series of the job's nodes.
            job: whose findings these are.
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
