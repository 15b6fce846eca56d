"""Ranks of running pods that are given the probe, but whose processes and rings are not visible.

An agent without the node's PID namespace sees no processes, and ranks have no ring before
`init_process_group` has returned: that they were started can then only be inferred from their
containers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rankscope_agent.contract.metrics import pods as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.pods.job_series import Members
from rankscope_agent.sources.pods.membership import MAX_RANKS, Membership
from rankscope_agent.sources.pods.records import Pod

RING_VARIABLE = "RANKSCOPE_RING_DIR"
"""Variables of a container that is given the probe."""

MAX_RANKS_OF_POD = 64


def started_samples(
    jobs: Mapping[str, Members], seen: Collection[tuple[str, int]], unseen_pods: Collection[str]
) -> Iterator[Sample]:
    """Yield when such ranks were started.

    Args:
        jobs: the pods of each job on this node.
        seen: job and number of ranks known by process or ring.
        unseen_pods: UIDs of the pods with a loaded probe and without a visible process.
    """
    for job_id, members in jobs.items():
        given: set[int] = set()
        for pod, member in members:
            began = None if pod.uid not in unseen_pods or pod.ended else _began(pod)
            for rank in _ranks(member) if began is not None else ():
                if rank not in given and (job_id, rank) not in seen:
                    given.add(rank)
                    yield metrics.RANK_STARTED.sample(began or 0.0, job_id=job_id, rank=str(rank))


def _began(pod: Pod) -> float | None:
    """Return since when the containers that are given the probe have been running; None if not."""
    probed = [one for one in pod.containers if one.environment.get(RING_VARIABLE)]
    moments = [one.started_unix_seconds if one.started else 0.0 for one in probed]
    return max(moments) if moments and all(moments) else None


def _ranks(member: Membership) -> range:
    """Return the ranks of a pod's processes; empty if the pod does not show them."""
    count, first = member.local_world_size, member.rank
    if first is None and member.node_rank is not None and not member.elastic:
        first = member.node_rank * (count or 0)
    if not member.trains or first is None or not count or count > MAX_RANKS_OF_POD:
        return range(0)
    return range(first, min(first + count, MAX_RANKS))
