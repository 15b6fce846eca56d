"""Other jobs on a job's nodes: what is known of a node alone may be theirs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rankscope_agent.contract.metrics import nccl_log, nccl_ras, pods, training
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.other_periods import OtherPeriods, Period
from rankscope_analyzers.text.name_lists import named


def outside_of_pods(observed: Observed, job_id: str) -> OtherPeriods:
    """Return when other jobs than this one ran outside of pods."""
    bare = (
        one
        for one in observed.of(training.RANK_INFO)
        if not (one.labels.get("pod_name") or one.labels.get("pod_uid"))
    )
    found: dict[str, list[Period]] = defaultdict(list)
    for (node, job), period in _periods(observed, bare).items():
        if job != job_id:
            found[node].append(period)
    return OtherPeriods(first_starts(observed, job_id), found)


def alone(observed: Observed, job_id: str) -> Observed:
    """Return what was read of the nodes on which no rank of another job lives.

    NCCL's RAS has one port on a node, and does not say for which job it answers.
    """
    return observed.on(observed.nodes - _with_others(observed, job_id))


def _with_others(observed: Observed, job_id: str) -> frozenset[str]:
    return frozenset(
        node
        for (node, job), period in _periods(observed, observed.of(training.RANK_INFO)).items()
        if job != job_id and period.ended == math.inf
    )


def first_starts(observed: Observed, job_id: str) -> Mapping[str, float]:
    """Return when the oldest living process of a job on each node was started, in Unix seconds."""
    return {node: at for (node, job), at in _starts(observed).items() if job == job_id}


def unattributed(observed: Observed, job: JobView) -> Iterator[str]:
    """Yield what was read on a job's nodes and may be of another job, as sentences."""
    logs = {
        one.node
        for one in observed.of(nccl_log.NCCL_SOCKET_FALLBACK, pod_namespace="", pod_name="")
        if one.node in job.nodes
        and job.others.may_have(one.node)
        and not any(place.pod for place in job.on_node[one.node])
    }
    if logs:
        yield (
            f"NCCL's logs on {named(sorted(logs), 'node')}: other jobs run there outside of pods,"
            " and may have written them"
        )
    asked = {one.node for one in observed.of(nccl_ras.RAS_LAST_QUERY) if one.node in job.nodes}
    if unsure := asked & _with_others(observed, job.job_id):
        yield (
            f"NCCL's RAS on {named(sorted(unsure), 'node')}: other jobs run there, and it does not"
            " say for which it answers"
        )


_Placed = tuple[str, str]
"""A node and a job."""


def _periods(observed: Observed, processes: Iterable[Series]) -> Mapping[_Placed, Period]:
    """Return when the jobs of processes, given by their identities, were on each node.

    Processes whose end nobody saw ended before the node's agent began: they are left out.
    """
    ends = _Ends.of(observed)
    ended: dict[_Placed, float] = {}
    for one in processes:
        if (end := ends.end(one)) is not None:
            placed = _placed(one)
            ended[placed] = max(end, ended.get(placed, end))
    began = _starts(observed)
    return {placed: Period(began.get(placed, -math.inf), end) for placed, end in ended.items()}


def _starts(observed: Observed) -> Mapping[_Placed, float]:
    found: dict[_Placed, float] = {}
    for one in observed.of(pods.RANK_STARTED):
        placed = _placed(one)
        found[placed] = min(one.last, found.get(placed, one.last))
    return found


@dataclass(frozen=True, slots=True)
class _Ends:
    """Ends of processes.

    Args:
        alive: 1 or 0, by process.
        noted: when processes ended, by process.
        newest: time of the newest page that shows processes, by node.
    """

    alive: Mapping[_Process, float]
    noted: Mapping[_Process, float]
    newest: Mapping[str, float]

    @classmethod
    def of(cls, observed: Observed) -> _Ends:
        newest: dict[str, float] = {}
        for one in observed.of(training.RANK_INFO):
            newest[one.node] = max(float(one.times[-1]), newest.get(one.node, 0.0))
        return cls(
            {_process(one): one.last for one in observed.of(training.RANK_ALIVE)},
            {_process(one): one.last for one in observed.of(training.RANK_ENDED)},
            newest,
        )

    def end(self, one: Series) -> float | None:
        """Return when a process ended, infinite while it lives, None if that is unknown."""
        alive = self.alive.get(_process(one))
        if alive == 0:
            return self.noted.get(_process(one))
        last = float(one.times[-1])
        return math.inf if last == self.newest[one.node] else last


_Process = tuple[str, str, str]
"""A node, a job and a rank, as in its label."""


def _process(series: Series) -> _Process:
    return *_placed(series), series.labels.get("rank", "")


def _placed(series: Series) -> _Placed:
    return series.node, series.labels.get("job_id", "")
