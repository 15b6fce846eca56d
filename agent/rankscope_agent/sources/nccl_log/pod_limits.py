"""Which pods forget what their logs said if there are too many, or they take too much memory: pure.

Kubernetes keeps pods that have ended, and their logs: these give way first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from rankscope_agent.contract.fair_shares import allot_to_holders
from rankscope_agent.sources.nccl_log.pod import PodLogs
from rankscope_agent.sources.pods.log_directories import PodIdentity

Ended = Callable[[str], bool]
"""Returns True for the UID of a pod that is known to have ended."""


def one_too_many(known: Sequence[PodLogs], newcomer: PodLogs, ended: Ended) -> PodLogs:
    """Return the pod that gives way to a newcomer, or is the newcomer itself.

    It is one of a namespace with more pods than the newcomer's, else of the newcomer's: the first
    that has ended, else the newest.

    Args:
        known: the pods that are remembered, the newcomer among them, in the order of their
            beginning.
        newcomer: the pod that is one too many.
        ended: see `Ended`.
    """
    pods = Counter(job.owner.namespace for job in known)
    own = newcomer.owner.namespace
    largest = max(pods, key=lambda namespace: pods[namespace])
    charged = own if pods[largest] == pods[own] else largest
    candidates = [job for job in known if job.owner.namespace == charged]
    newest = newcomer if charged == own else candidates[-1]
    return next((job for job in candidates if ended(job.owner.uid)), newest)


def over_share(
    jobs: Mapping[PodIdentity, PodLogs], available: int, ended: Ended
) -> Iterator[PodLogs]:
    """Yield the pods that take more than their fair share of memory, in the order to forget.

    Args:
        jobs: all pods.
        available: bytes.
        ended: see `Ended`.
    """
    shares = allot_to_holders({one.holder: job.weight for one, job in jobs.items()}, available)
    excess = {job: job.weight - shares[owner.holder] for owner, job in jobs.items()}
    order = sorted(excess, key=lambda job: (not ended(job.owner.uid), -excess[job]))
    return (job for job in order if excess[job] > 0)
