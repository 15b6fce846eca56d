"""Other jobs on a job's nodes: what is known of a node alone may be theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rankscope_agent.contract.metrics import nccl_log, nccl_ras, pods, training
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.text.name_lists import named


def beside(observed: Observed, job_id: str) -> frozenset[str]:
    """Return the nodes on which other jobs ran outside of pods at the same time as a job.

    Those that had ended before are left out: agents forget what they logged.
    """
    began = first_starts(observed, job_id)
    ended = {
        _process(one): one.last
        for one in observed.of(training.RANK_ENDED)
        if one.labels.get("job_id") != job_id
    }
    return frozenset(
        one.node
        for one in observed.of(training.RANK_INFO)
        if one.labels.get("job_id") != job_id
        and not (one.labels.get("pod_name") or one.labels.get("pod_uid"))
        and ended.get(_process(one), float("inf")) >= began.get(one.node, 0.0)
    )


def alone(observed: Observed, job_id: str) -> Observed:
    """Return what was read of the nodes on which no rank of another job lives.

    NCCL's RAS has one port on a node, and does not say for which job it answers.
    """
    return observed.on(observed.nodes - _of_others(observed, job_id))


def _of_others(observed: Observed, job_id: str) -> frozenset[str]:
    alive = observed.of(training.RANK_ALIVE)
    return frozenset(
        one.node for one in alive if one.last == 1 and one.labels.get("job_id") != job_id
    )


def first_starts(observed: Observed, job_id: str) -> Mapping[str, float]:
    """Return when the oldest living process of a job on each node was started, in Unix seconds."""
    found: dict[str, float] = {}
    for one in observed.of(pods.RANK_STARTED, job_id=job_id):
        found[one.node] = min(one.last, found.get(one.node, one.last))
    return found


def unattributed(observed: Observed, job: JobView) -> Iterator[str]:
    """Yield what was read on a job's nodes and may be of another job, as sentences."""
    logs = {
        one.node
        for one in observed.of(nccl_log.NCCL_SOCKET_FALLBACK, pod_namespace="", pod_name="")
        if one.node in job.shared_nodes & job.nodes
        and not any(place.pod for place in job.on_node[one.node])
    }
    if logs:
        yield (
            f"NCCL's logs on {named(sorted(logs), 'node')}: other jobs run there outside of pods,"
            " and may have written them"
        )
    asked = {one.node for one in observed.of(nccl_ras.RAS_LAST_QUERY) if one.node in job.nodes}
    if unsure := asked & _of_others(observed, job.job_id):
        yield (
            f"NCCL's RAS on {named(sorted(unsure), 'node')}: other jobs run there, and it does not"
            " say for which it answers"
        )


def _process(series: Series) -> tuple[str, str, str]:
    labels = series.labels
    return series.node, labels.get("job_id", ""), labels.get("rank", "")
