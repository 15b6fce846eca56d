"""Which pods belong to training jobs, as far as they show it themselves."""

from __future__ import annotations

from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.records import Pod

BATCH_KINDS = frozenset(
    (
        *("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob"),
        *("JobSet", "LeaderWorkerSet", "VolcanoJob", "RayJob", "RayCluster", "ElasticJob"),
    )
)
"""Kinds that exist for training; pods of other kinds count as a job if they hold devices."""


def is_training(pod: Pod, member: Membership) -> bool:
    """Return True for pods of training kinds, and for others that request devices."""
    if member.kind in BATCH_KINDS:
        return True
    return any(container.limits for container in pod.containers)
