"""The identity of the rank that writes a ring."""

from __future__ import annotations

from rankscope_agent.contract.model import RankIdentity
from rankscope_agent.sources.training.files import OpenRing
from rankscope_agent.sources.training.format import SAMPLED, StepRecord

LAUNCHERS = frozenset({"torchrun", "slurm", "mpi", "kubernetes", "environment", "none"})
"""The values used by the probe; a label takes no other."""


def rank_identity(
    ring: OpenRing, own_node: str, last: StepRecord | None, *, alive: bool
) -> RankIdentity:
    """Return who writes a ring; `last` is its newest record, which shows how time is measured."""
    header = ring.header
    launcher = header.launcher or "none"
    return RankIdentity(
        job_id=header.job_id,
        rank=header.rank,
        node=ring.node(own_node),
        local_rank=header.local_rank,
        world_size=header.world_size,
        local_world_size=header.local_world_size,
        attempt=header.attempt,
        timing_source=_timing_source(last),
        launcher=launcher if launcher in LAUNCHERS else "other",
        pod_uid=ring.pod_uid,
        pod_namespace=ring.pod_namespace,
        pid=header.pid,
        alive=alive,
        dp_group=header.dp_group,
        tp_group=header.tp_group,
        pp_stage=header.pp_stage,
        torch_version=header.torch_version,
        probe_version=header.probe_version,
        gpu_uuid=header.gpu_uuid,
    )


def _timing_source(last: StepRecord | None) -> str:
    """Return how a process measures; between two samples, how samples are measured."""
    if last is None:
        return "none"
    return SAMPLED if last.sampled else last.timing_source
