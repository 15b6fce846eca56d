"""Joins that add information about a job, pod, finding or GPU to series that carry only its key.

Rules and panels use these; each documents what happens if the other side is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rankscope_agent.contract.metrics import watch
from rankscope_dashboards.expressions.promql import JOB_INFO_RECORD, LOG_POD, POD_JOB_RECORD, worst

OWNER = ("class", "owner", "team", "project")
CULPRIT_LABELS = ("symptom", "rank", "node", "gpu", "uuid", "device")
SLOW_LABELS = CULPRIT_LABELS[:-1]
"""What step times show. A device is known of the cause alone."""


def join(expression: str, on: Sequence[str], take: Sequence[str], info: str) -> str:
    """Add labels to an expression from series that exist once for each key.

    Values without such a series are dropped.

    Args:
        expression: whose values are kept.
        on: the key, in addition to the cluster.
        take: the labels to add.
        info: the series that carry them, always 1.
    """
    keys, added = ", ".join(("cluster", *on)), ", ".join(take)
    return f"{expression} * on ({keys}) group_left ({added}) {info}"


def one_of(info: str, *keys: str) -> str:
    """Keep one series for each key: several would make a join fail."""
    return f"topk by ({', '.join(('cluster', *keys))}) (1, {info})"


def stated(info: str, bare: str, facts: Sequence[str], before: str = "") -> str:
    """Return one series per job, always 1, with the facts that most of its nodes state.

    Pods of one job may be labelled differently, such as a launcher without any labels: nodes whose
    pods have none count only where no node's have any.

    Args:
        info: series of jobs by node, always 1.
        bare: those of them that have none of the facts.
        facts: the labels besides the job.
        before: series that had been chosen, always 1. Where as many nodes state other facts, they
            remain, whichever series Prometheus reads first.
    """
    keys = f"cluster, job_id, {', '.join(facts)}"
    votes = f"max by ({keys}, node) ({info} unless {bare})"
    if before:
        votes += f" or 0.5 * {before} and on ({keys}) {info}"
    most = one_of(f"sum by ({keys}) ({votes})", "job_id")
    return f"(group by ({keys}) ({most})\nor on (cluster, job_id) group by ({keys}) ({info}))"


def with_job_of_pod(expression: str) -> str:
    """Add `job_id` to values by pod; if no job is known, they remain without one."""
    joined = join(f"({expression})", LOG_POD, ("job_id",), POD_JOB_RECORD)
    return f"({joined} or on ({', '.join(('cluster', *LOG_POD))}) ({expression}))"


def worst_by_job(expression: str) -> str:
    """Return the largest of each job's values by pod; a pod whose job is unknown keeps its own.

    Several ranks print what concerns the whole job, and pods that replace others have new names:
    alerts by pod would be several about one job.
    """
    jobs = worst(join(f"({expression})", LOG_POD, ("job_id",), POD_JOB_RECORD), "job_id")
    return f"({jobs} or ({expression}) unless on (cluster, {', '.join(LOG_POD)}) {POD_JOB_RECORD})"


def with_owner(expression: str) -> str:
    """Add a job's owner; a job without a known owner keeps its alert, without an owner.

    A Prometheus that was restarted does not end what it recorded before: for five minutes a job
    whose labels have changed since has two owners, and the alert would fail for all jobs.
    """
    joined = join(f"({expression})", ("job_id",), OWNER, one_of(JOB_INFO_RECORD, "job_id"))
    return f"{joined}\nor on (cluster, job_id) ({expression})"


def with_culprit(findings: str, take: Sequence[str], culprits: str) -> str:
    """Add the culprits to findings by job and kind, and drop those without a culprit."""
    return join(findings, ("job_id", "kind"), take, culprits)


def _one_culprit(selector: str = "") -> str:
    """Return the culprits of findings.

    Two watches, of which one is on standby, may both be scraped; and when the culprit changes, the
    previous series lives on for a moment.
    """
    culprit = worst(watch.FINDING_CULPRIT_INFO.name + selector, "job_id", "kind", *CULPRIT_LABELS)
    return one_of(culprit, "job_id", "kind")


def finding(kinds: Iterable[str]) -> str:
    """Return active findings of some kinds of causes, with their culprits; the value is 1."""
    which = '{kind=~"' + "|".join(kinds) + '"}'
    active = worst(watch.FINDING_ACTIVE.name + which, "job_id", "kind")
    return with_culprit(active, CULPRIT_LABELS, _one_culprit())


def slow(symptom: str, least_lost: str, labels: Sequence[str] = SLOW_LABELS) -> str:
    """Return the cost of a symptom in step times, with its culprit.

    The kind of the cause is left out, with its device and, where step times name no rank, its
    node: layers that see more may change it while the symptom lasts, and an alert with other labels
    is another alert.

    Args:
        symptom: what step times show, whatever the cause.
        least_lost: the fraction of step time that it must cost, a number or its placeholder; it is
            the value.
        labels: of the culprit.
    """
    lost = worst(watch.FINDING_LOST_FRACTION.name, "job_id", "kind")
    culprit = _one_culprit(f'{{symptom="{symptom}"}}')
    found = with_culprit(f"({lost} >= {least_lost})", labels, culprit)
    if "node" in labels:
        found = f'label_replace({found}, "node", "", "rank", "")'
    return worst(found, "job_id", *labels)


def named_before(alert: str, slow_ranks: str, slow_nodes: str) -> str:
    """Return slow ranks whose alert a watch began, under the culprit that it named.

    While the watch is away, the alert it began goes on: one with other labels would be another.

    Args:
        alert: the name of the alert.
        slow_ranks: series by job, node and rank.
        slow_nodes: those by job and node of nodes whose ranks are slow together.
    """
    began = worst(f'ALERTS{{alertname="{alert}",symptom!=""}}', "job_id", *SLOW_LABELS)
    named = " or ".join(
        join(
            series,
            ("job_id", key),
            [label for label in SLOW_LABELS if label != key],
            one_of(began, "job_id", key),
        )
        for series, key in ((slow_ranks, "rank"), (slow_nodes, "node"))
    )
    return worst(named, "job_id", *SLOW_LABELS)


def with_rank_of_gpu(expression: str, by_uuid: str, numbered: str, gpus: str) -> str:
    """Add `rank` to series of GPUs: by uuid if it is known, else by the rank's local number.

    GPUs that no rank has are dropped.

    Args:
        expression: series of GPUs.
        by_uuid: infos of ranks with a known uuid.
        numbered: infos of the other ranks, with their local number as `gpu`.
        gpus: infos of GPUs.
    """
    known = one_of(worst(by_uuid, "node", "uuid", "rank"), "node", "uuid")
    others = one_of(worst(numbered, "node", "gpu", "rank"), "node", "gpu")
    numbers = worst(f"({join(gpus, ('node', 'gpu'), ('rank',), others)})", "node", "uuid", "rank")
    by_number = one_of(numbers, "node", "uuid")
    ranks = f"({known} or on (cluster, node, uuid) {by_number})"
    return join(f"({expression})", ("node", "uuid"), ("rank",), ranks)
