"""Processes that the kernel ended: killed for lack of memory, or crashed.

Each belongs to one pod: it concerns a job only if the pod is the job's, and only since the first of
the job's steps that were read. A process of unknown origin is only mentioned; so is one killed
outside of pods, where other jobs ran then and none of the job's ranks ended. What both the kernel's
log and a pod's own counter show is reported once. A death is over once the pod's ranks make steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rankscope_agent.contract.metrics import host, kernel_log, summary, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Layer, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.later_steps import went_on
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.layers.series_findings import series_finding

WINDOW_SECONDS = 3600.0
"""Maximum age of a death: PyTorch's watchdogs give up after half an hour at most."""

NOTICED_SECONDS = 60.0
"""Counters, which show a death this much later than it was, are read every 15 to 60 seconds."""

KILL, CRASH, STRAY = "oom_kill", "app", "unattributed_kill"
KINDS = frozenset((KILL, CRASH, STRAY))

PHRASES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("oom_kill", "cgroup"): (KILL, "a process was killed at its memory limit"),
    ("oom_kill", "node"): (KILL, "a process was killed as the node ran out of memory"),
    ("user_fault", ""): (CRASH, "a program crashed"),
}
"""Phrases for events in the kernel's log, by kind and scope."""

READS: tuple[Metric, ...] = (
    kernel_log.POD_LAST_EVENT,
    summary.POD_JOB_INFO,
    host.POD_OOM_KILLS,
    host.OOM_KILLS,
)

Pod = tuple[str, str]
"""Node and UID."""


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield processes of the job that the kernel ended, and those that may be the job's."""
    newest = max(observed.newest().values(), default=0.0)
    since = newest - WINDOW_SECONDS
    if job.began_unix_seconds is not None:
        since = max(since, job.began_unix_seconds)
    steps = by_rank(observed, training.LAST_STEP_TIMESTAMP, job.job_id)
    gone = _gone(observed, job.job_id)
    deaths = _Deaths(observed, job, since, _named_pods(observed), steps, gone)
    yield from deaths.logged()
    yield from deaths.counted()


def _named_pods(observed: Observed) -> Mapping[Pod, str]:
    """Return namespace/name of the pods that are known to be of a job, by node and UID."""
    found: dict[Pod, str] = {}
    for metric in (summary.POD_JOB_INFO, training.RANK_INFO):
        for series in observed.of(metric):
            labels = series.labels
            name = f"{labels.get('pod_namespace', '')}/{labels.get('pod_name', '')}"
            found[series.node, labels.get("pod_uid", "")] = name
    return {pod: name for pod, name in found.items() if pod[1]}


def _gone(observed: Observed, job_id: str) -> Mapping[int, float]:
    """Return when the ranks of a job that live no more ended, infinite if that is unknown."""
    ended = by_rank(observed, training.RANK_ENDED, job_id)
    return {
        rank: ended[rank].last if rank in ended else math.inf
        for rank, one in by_rank(observed, training.RANK_ALIVE, job_id).items()
        if one.last == 0
    }


@dataclass(frozen=True, slots=True)
class _Deaths:
    """Finds the deaths of one job's processes.

    Args:
        since: Unix time before which nothing counts.
        pods: names of the pods of any job.
        steps: when the job's ranks ended their last steps.
        gone: when the job's ranks that live no more ended, infinite if that is unknown.
    """

    observed: Observed
    job: JobView
    since: float
    pods: Mapping[Pod, str]
    steps: Mapping[int, Series]
    gone: Mapping[int, float]

    def logged(self) -> Iterator[Finding]:
        """Yield deaths that the kernel's logs report."""
        for series in self._logged():
            labels = series.labels
            sentence = PHRASES.get((labels.get("kind", ""), labels.get("scope", "")))
            if sentence is None:
                continue
            kind, what = sentence
            where = self._where(kind, series, series.values[series.values >= self.since].tolist())
            values = (series.last, 0.0, "unix seconds")
            yield from self._findings(kind, "kernel", where, series, what, values, series.last)

    def counted(self) -> Iterator[Finding]:
        """Yield deaths that only the counters of pods and nodes report."""
        reported_pods = {_pod(series) for series in self._logged(kind="oom_kill")}
        read = self.observed.nodes_with((kernel_log.KERNEL_LOG_INFO,))
        of_pods: set[str] = set()
        for series in self._risen(host.POD_OOM_KILLS):
            of_pods.add(series.node)
            if _pod(series) not in reported_pods:
                yield from self._kills(series)
        for series in self._risen(host.OOM_KILLS):
            if series.node not in of_pods and series.node not in read:
                yield from self._kills(series)

    def _logged(self, **labels: str) -> Iterator[Series]:
        for series in self.observed.of(kernel_log.POD_LAST_EVENT, **labels):
            if series.node in self.job.on_node and series.last >= self.since:
                yield series

    def _risen(self, metric: Metric) -> Iterator[Series]:
        for series in self.observed.of(metric):
            if series.node in self.job.on_node and series.increase() > 0:
                begun = series.first_change()
                if begun is None or begun >= self.since:
                    yield series

    def _kills(self, series: Series) -> Iterator[Finding]:
        killed = series.increase()
        some = "a process was" if killed <= 1 else f"{killed:.0f} processes were"
        what = f"{some} killed for lack of memory"
        values = (killed, 0.0, "count")
        where = self._where(KILL, series, series.times[1:][np.diff(series.values) != 0].tolist())
        begun = series.first_change()
        yield from self._findings(KILL, "host", where, series, what, values, begun)

    def _where(self, kind: str, series: Series, times: Sequence[float]) -> Where | None:
        """Return the ranks of the pod, or the node if none is in a pod; None if not the job's.

        Outside of pods a process and the ranks have only the node in common: it may belong to any
        program if it crashed, and to any of the node's jobs if it was killed.
        """
        uid = series.labels.get("pod_uid", "")
        here = self.job.on_node.get(series.node, ())
        name = self.pods.get(_pod(series), "")
        ranks = [
            location.rank
            for location in here
            if uid and (location.pod_uid == uid or (name and location.pod == name))
        ]
        outside = not uid and not any(location.pod or location.pod_uid for location in here)
        if not ranks and not (outside and self._may_be_ours(kind, series.node, times)):
            return None
        return Where(nodes=(series.node,), ranks=tuple(sorted(ranks)))

    def _may_be_ours(self, kind: str, node: str, times: Sequence[float]) -> bool:
        """Return True if one of several deaths on a node may be that of a process of the job."""
        if self._lost_a_rank(node, min(times)):
            return True
        others = self.job.others
        return kind == KILL and not all(
            others.may_have(node, at) or others.may_have(node, at - NOTICED_SECONDS) for at in times
        )

    def _lost_a_rank(self, node: str, at: float) -> bool:
        """Return True if a rank of the node has ended, and not long before a time."""
        return any(
            self.gone.get(location.rank, -math.inf) >= at - NOTICED_SECONDS
            for location in self.job.on_node.get(node, ())
        )

    def _findings(
        self,
        kind: str,
        layer: Layer,
        where: Where | None,
        series: Series,
        what: str,
        values: tuple[float, float, str],
        since: float | None,
    ) -> Iterator[Finding]:
        """Yield a death in the job, or one of unknown origin on its node."""
        sentence = f"on node {series.node} {what}"
        if where is None:
            if _pod(series) in self.pods:  # another job's, reported there
                return
            kind, where = STRAY, Where(nodes=(series.node,))
            sentence += f", of which job is unknown (pod {series.labels.get('pod_uid') or 'none'})"
        evidence = (Evidence(series.name, *values, what),)
        last = series.last if layer == "kernel" else series.held_since()
        over = last is not None and went_on(self.steps, where.ranks, last)
        found = series_finding(kind, layer, self.job.job_id, where, sentence, evidence, since)
        yield replace(found, until_unix_seconds=last if over else None)


def _pod(series: Series) -> Pod:
    return series.node, series.labels.get("pod_uid", "")
