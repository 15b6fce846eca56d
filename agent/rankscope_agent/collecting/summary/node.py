"""The node summary as one more collector, whose source is the output of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope_agent.collecting.summary.gpus import GpuSummary
from rankscope_agent.collecting.summary.jobs import by_name, job_samples, jobs_of_pods
from rankscope_agent.collecting.summary.links import LinkSummary
from rankscope_agent.collecting.summary.nccl_conditions import NcclConditions
from rankscope_agent.collecting.summary.oom_kills import OomKills
from rankscope_agent.collecting.summary.readings import Readings
from rankscope_agent.collecting.summary.resources import resource_samples
from rankscope_agent.contract.model import Sample, Scrape


class NodeSummary:
    """Summarises one snapshot of the node after another, and remembers the last minutes."""

    def __init__(self) -> None:
        self._gpus = GpuSummary()
        self._links = LinkSummary()
        self._conditions = NcclConditions()
        self._kills = OomKills()

    def collect(self, scrapes: Sequence[Scrape], now: float) -> Iterator[Sample]:
        """Yield the summary.

        Args:
            scrapes: the newest outcomes of all collectors.
            now: monotonic seconds.
        """
        readings = Readings(scrapes)
        of_pods = jobs_of_pods(readings)
        yield from job_samples(readings, of_pods)
        yield from self._conditions.samples(readings, by_name(of_pods))
        yield from self._gpus.samples(readings, now)
        yield from self._links.samples(readings, now)
        yield from self._kills.samples(readings, now)
        yield from resource_samples(readings)
