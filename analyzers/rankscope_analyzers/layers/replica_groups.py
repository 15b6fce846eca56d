"""Jobs of replica groups (TorchFT), which continue while one of their groups recovers. Pure.

Ranks are numbered over all groups, those of one group consecutively. A group ends and restarts as a
whole: its launcher ends its other ranks when the first one fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers.rank_locations import by_rank

LOST = "replica_group_lost"
ENDS = frozenset(("pod_failed", "attempt_failed", "crash_loop"))
"""How a group's pods end: part of the finding on a lost group."""

READS: tuple[Metric, ...] = (training.JOB_REPLICA_GROUP_RANKS,)

PATIENT_SECONDS, PATIENT_STEPS = 60.0, 10.0
"""A group counts as running if each of its ranks ended a step within this: while another group
leaves or joins, those that stay wait for their quorum (torchft's default timeout is a minute)."""


def recovering(
    observed: Observed, job_id: str, ranks: Collection[int], gone: Collection[int]
) -> dict[int, list[int]]:
    """Return the ranks of each group that lost some, if any other group is whole and running.

    Args:
        observed: series of the job's nodes.
        job_id: of the job.
        ranks: whose state is known.
        gone: those of them that ended.

    Returns:
        Ranks by the number of their group; nothing for jobs without groups.
    """
    sizes = observed.of(training.JOB_REPLICA_GROUP_RANKS, job_id=job_id)
    size = int(max((series.last for series in sizes), default=0.0))
    if size < 1:
        return {}
    groups: dict[int, list[int]] = {}
    for rank in sorted(ranks):
        groups.setdefault(rank // size, []).append(rank)
    lost = {group for group, members in groups.items() if not set(gone).isdisjoint(members)}
    others = [members for group, members in groups.items() if group not in lost]
    if not any(_is_running(observed, job_id, members) for members in others):
        return {}
    return {group: groups[group] for group in sorted(lost)}


def with_ends(findings: Iterable[Finding]) -> Sequence[Finding]:
    """Return findings, those about failed pods on a lost group's nodes attributed to it.

    Pods' series name only nodes, where ranks of other groups may run as well. The job itself has
    not failed, so nobody needs to be woken for them.
    """
    found = tuple(findings)
    lost = next((one for one in found if one.kind == LOST), None)
    if lost is None:
        return found
    nodes, since = set(lost.where.nodes), lost.since_unix_seconds
    return tuple(
        replace(one, where=lost.where, severity=lost.severity, since_unix_seconds=since)
        if one.kind in ENDS and one.where.nodes and set(one.where.nodes) <= nodes
        else one
        for one in found
    )


def _is_running(observed: Observed, job_id: str, members: Collection[int]) -> bool:
    last = by_rank(observed, training.LAST_STEP_TIMESTAMP, job_id)
    usual = by_rank(observed, training.LAST_STEP_SECONDS, job_id)
    for rank in members:
        if rank not in last:
            return False
        step = usual[rank].last if rank in usual else 0.0
        quiet = float(last[rank].times[-1]) - last[rank].last
        if quiet >= max(PATIENT_SECONDS, PATIENT_STEPS * step):
            return False
    return True
