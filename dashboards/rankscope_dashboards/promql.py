"""Pieces of PromQL that several rules need, each with the reason for its shape."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope_agent.metrics import watch

GPU = ("node", "gpu", "uuid", "pci")
PORT = ("node", "device", "port")
LOG_POD = ("node", "pod_namespace", "pod_name")

JOB_INFO_RECORD = "job:rankscope_job:info"
POD_JOB_RECORD = "node_pod:rankscope_pod_job:info"


def by(*labels: str) -> str:
    """Return a by clause; `cluster` is in each, so that one server may hold several clusters."""
    return f"by ({', '.join(('cluster', *labels))})"


def worst(expression: str, *labels: str) -> str:
    """Return the largest value per group: of two agents that report one thing, one remains."""
    return f"max {by(*labels)} ({expression})"


def happened(selector: str, window: str) -> str:
    """Return what grew within a window, series that came to life within it included.

    increase() of a counter whose first value is 1 is 0, so that the first event of an agent's life
    would be missed. A series that comes back after an outage counts for one window too.
    """
    born = f"{selector} > 0 unless {selector} offset {window}"
    return f"(increase({selector}[{window}]) > 0 or ({born}))"


def recent(timestamps: str, seconds: int) -> str:
    """Return how many seconds ago something happened, where that is less than a limit."""
    return f"(time() - {timestamps}) < {seconds}"


def with_job_of_pod(expression: str) -> str:
    """Add `job_id` to what is known by pod; where no job is known, it stays without one."""
    keys = "cluster, node, pod_namespace, pod_name"
    joined = f"({expression}) * on ({keys}) group_left (job_id) {POD_JOB_RECORD}"
    return f"({joined} or on ({keys}) ({expression}))"


def with_owner(expression: str) -> str:
    """Add whose a job is; a job of which that is not known keeps its alert, without an owner."""
    owner = "class, owner, team, project"
    joined = f"({expression}) * on (cluster, job_id) group_left ({owner}) {JOB_INFO_RECORD}"
    return f"{joined}\nor on (cluster, job_id) ({expression})"


WHOM = ("symptom", "rank", "node", "gpu", "uuid", "device")


def _with_culprit(findings: str, selector: str = "") -> str:
    """Add to findings by job and kind whom they are about, and drop those without a culprit."""
    # Two watches, of which one is on standby, may both be scraped.
    culprit = worst(watch.FINDING_CULPRIT_INFO.name + selector, "job_id", "kind", *WHOM)
    # When the culprit changes, the series of the one before lives on for a moment.
    one = f"topk {by('job_id', 'kind')} (1, {culprit})"
    return f"{findings} * on (cluster, job_id, kind) group_left ({', '.join(WHOM)}) {one}"


def finding(kinds: Iterable[str]) -> str:
    """Return running findings of some kinds of causes, with their culprits; the value is 1."""
    which = '{kind=~"' + "|".join(kinds) + '"}'
    return _with_culprit(worst(watch.FINDING_ACTIVE.name + which, "job_id", "kind"))


def slow(symptom: str, least_lost: float) -> str:
    """Return what a symptom in step times costs, with its culprit.

    The kind of the cause is left out: layers that see more may change it while the symptom goes on,
    and an alert with other labels is another alert.

    Args:
        symptom: what step times show, whatever the cause.
        least_lost: the part of step time that it must cost, which is the value.
    """
    lost = worst(watch.FINDING_LOST_FRACTION.name, "job_id", "kind")
    found = _with_culprit(f"({lost} >= {least_lost})", f'{{symptom="{symptom}"}}')
    return worst(found, "job_id", *WHOM)
