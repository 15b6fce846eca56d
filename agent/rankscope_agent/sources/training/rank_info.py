"""The series that states where a rank runs and what it is part of; others are joined with it."""

from __future__ import annotations

from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import RankIdentity, Sample
from rankscope_agent.sources.pods.rank_location import RankLocation


def info_sample(identity: RankIdentity, location: RankLocation) -> Sample:
    """Return the series of a rank."""
    return metrics.RANK_INFO.sample(
        1,
        job_id=identity.job_id,
        rank=str(identity.rank),
        node=identity.node,
        local_rank=_label(identity.local_rank),
        world_size=_label(identity.world_size),
        uuid=location.uuid,
        pod_uid=identity.pod_uid,
        # For a pod that is gone only the ring remembers.
        pod_namespace=location.pod_namespace or identity.pod_namespace,
        pod_name=location.pod_name,
        container_name=location.container_name,
        dp_group=_label(identity.dp_group, ""),
        tp_group=_label(identity.tp_group, ""),
        pp_stage=_label(identity.pp_stage, ""),
        launcher=identity.launcher,
        timing_source=identity.timing_source,
    )


def _label(number: int | None, unknown: str = "unknown") -> str:
    return unknown if number is None else str(number)
