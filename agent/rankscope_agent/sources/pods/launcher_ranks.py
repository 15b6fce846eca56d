"""How each launcher describes a pod's ranks: the meaning of its variables and indices.

`RANK` in the spec of a PyTorchJob or a Volcano job numbers pods; torchrun assigns another one to
each process. So a process's rank can only be derived from a pod that is known to run one process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from rankscope_agent.contract import untrusted_json
from rankscope_agent.sources.pods.json_fields import text_of
from rankscope_agent.sources.pods.membership import MAX_RANKS, Membership, number, variable
from rankscope_agent.sources.pods.records import Pod

_ORDINAL = re.compile(r"-(\d{1,7})$", re.ASCII)


def unknown(_pod: Pod, member: Membership) -> Membership:
    """Leave ranks unknown: this launcher says nothing about them."""
    return member


def one_process_by(
    rank_variable: str, size_variable: str
) -> Callable[[Pod, Membership], Membership]:
    """Return a reader for a launcher whose pods run one process each, numbered by a variable."""

    def read(pod: Pod, member: Membership) -> Membership:
        rank = number(variable(pod, rank_variable))
        return replace(
            member,
            node_rank=rank,
            rank=rank,
            world_size=number(variable(pod, size_variable)),
            local_world_size=1,
            source="none" if rank is None else "environment",
        )

    return read


def pytorch_job(pod: Pod, member: Membership) -> Membership:
    """Read a PyTorchJob: RANK numbers pods, WORLD_SIZE is replicas times a known nprocPerNode.

    If there is a master, it is pod 0 and worker i is pod i + 1. An elastic job without a master has
    no numbers: its rendezvous assigns them.
    """
    found = _torchrun(pod, member, "PET_NODE_RANK", "RANK")
    if found.node_rank is None and member.index is not None and not found.elastic:
        has_master = (variable(pod, "MASTER_ADDR") or "").endswith("-master-0")
        shift = 1 if has_master and member.role == "worker" else 0
        if has_master or member.role == "master":
            found = replace(found, node_rank=member.index + shift, source="label")
    size = number(variable(pod, "WORLD_SIZE"))
    known = found.local_world_size is not None and not found.elastic
    return _single(replace(found, world_size=size if known else None))


def train_job(pod: Pod, member: Membership) -> Membership:
    """Read a TrainJob (Trainer v2): PET_NODE_RANK and JAX_PROCESS_ID refer to the completion index.

    An MPI launcher is not a rank unless it runs as a node, which its pod does not show.
    """
    if member.role in {"launcher", "mpi-launcher"}:
        return replace(member, trains=False)
    if variable(pod, "JAX_NUM_PROCESSES"):
        return one_process_by("JAX_PROCESS_ID", "JAX_NUM_PROCESSES")(pod, member)
    if variable(pod, "DMLC_NUM_WORKER"):
        return one_process_by("DMLC_TASK_ID", "DMLC_NUM_WORKER")(pod, member)
    return _sized(pod, _torchrun(pod, member, "PET_NODE_RANK"))


def mpi_job(pod: Pod, member: Membership) -> Membership:
    """Read an MPIJob: workers run sshd, so only processes show ranks.

    A launcher of v2 trains if it counts as a worker (`runLauncherAsWorker`), which gives it an
    index. Launchers of v1, which is the only version to set replica-type, have an index but never
    train.
    """
    v1 = "training.kubeflow.org/replica-type" in pod.labels
    trains = member.role != "launcher" or (member.index is not None and not v1)
    slots = variable(pod, "OMPI_MCA_orte_set_default_slots") or variable(pod, "I_MPI_PERHOST")
    return replace(
        member,
        trains=trains,
        node_rank=member.index,
        local_world_size=number(slots),
        source="none" if member.index is None else "label",
    )


def tf_job(pod: Pod, member: Membership) -> Membership:
    """Read a TFJob: the chief (or master) is rank 0, followed by workers, as listed in TF_CONFIG.

    Parameter servers and evaluators are not ranks.
    """
    config = _json(variable(pod, "TF_CONFIG"))
    cluster, task = config.get("cluster"), config.get("task")
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        return replace(member, local_world_size=1)
    sizes = {
        key: len(cluster[key])
        for key in ("chief", "master", "worker")
        if isinstance(cluster.get(key), list)
    }
    kind, index = text_of(task.get("type")), task.get("index")
    if kind not in sizes or not isinstance(index, int) or not 0 <= index < sizes[kind]:
        return replace(member, local_world_size=1, trains=kind not in {"ps", "evaluator"})
    before = sizes.get("chief", 0) + sizes.get("master", 0) if kind == "worker" else 0
    rank = before + index
    return replace(
        member,
        node_rank=rank,
        rank=rank,
        world_size=sum(sizes.values()),
        local_world_size=1,
        source="environment",
    )


def paddle_job(pod: Pod, member: Membership) -> Membership:
    """Read a PaddleJob: the launcher inside the pods assigns ranks; the size is known."""
    size = number(variable(pod, "PADDLE_TRAINER_NUM"))
    return replace(member, world_size=size, source="none" if size is None else "environment")


def dlrover_job(pod: Pod, member: Membership) -> Membership:
    """Read a DLRover ElasticJob: a relaunched pod keeps its rank index."""
    index = number(pod.labels.get("elasticjob.dlrover/rank-index"))
    stated = number(variable(pod, "NODE_RANK"))
    node_rank = stated if index is None else index
    return replace(
        member, node_rank=node_rank, elastic=True, source="none" if node_rank is None else "label"
    )


def ray_job(pod: Pod, member: Membership) -> Membership:
    """Read a Ray pod: Ray Train numbers processes itself; a head without devices does not train."""
    devices = any(container.limits for container in pod.containers)
    return replace(member, trains=member.role != "head" or devices, elastic=True)


def leader_worker_set(pod: Pod, member: Membership) -> Membership:
    """Read a LeaderWorkerSet: groups of one size, each with a leader (index 0) and workers."""
    group = number(pod.labels.get("leaderworkerset.sigs.k8s.io/group-index"))
    size = number(variable(pod, "LWS_GROUP_SIZE")) or number(
        pod.annotations.get("leaderworkerset.sigs.k8s.io/size")
    )
    role = "leader" if member.index == 0 else "worker"
    if None in (group, size, member.index):
        return replace(member, role=role)
    node_rank = (group or 0) * (size or 0) + (member.index or 0)
    return replace(member, role=role, node_rank=node_rank, source="label")


def volcano_job(pod: Pod, member: Membership) -> Membership:
    """Read a Volcano job: the pytorch plugin's RANK and WORLD_SIZE both count pods."""
    index = member.index
    if index is None:
        index = number(variable(pod, "VC_TASK_INDEX") or variable(pod, "VK_TASK_INDEX"))
    return _single(_torchrun(pod, replace(member, index=index), "PET_NODE_RANK", "RANK"))


def job_set(pod: Pod, member: Membership) -> Membership:
    """Read a JobSet: the completion index is the pod's number only if one Job creates all pods."""
    found = _sized(pod, _torchrun(pod, member, "PET_NODE_RANK", "NODE_RANK"))
    if found.node_rank is not None:
        return found
    jobs = number(pod.labels.get("jobset.sigs.k8s.io/global-replicas")) or number(
        pod.labels.get("jobset.sigs.k8s.io/replicatedjob-replicas")
    )
    if jobs == 1 and member.index is not None:
        return _single(replace(found, node_rank=member.index, source="label"))
    return found


def indexed_job(pod: Pod, member: Membership) -> Membership:
    """Read a Job: an indexed one numbers its pods."""
    index = member.index
    if index is None:
        index = number(variable(pod, "JOB_COMPLETION_INDEX"))
    found = _sized(pod, _torchrun(pod, member, "PET_NODE_RANK", "NODE_RANK"))
    if found.node_rank is None and index is not None:
        found = replace(found, node_rank=index, source="label")
    return _single(replace(found, index=index))


def stateful_set(pod: Pod, member: Membership) -> Membership:
    """Read a StatefulSet: the ordinal at the end of a pod's name, a label too since 1.28."""
    ordinal = _ORDINAL.search(pod.name)
    index = member.index if member.index is not None else number(ordinal[1] if ordinal else None)
    found = _sized(pod, _torchrun(pod, member, "PET_NODE_RANK", "NODE_RANK"))
    if found.node_rank is None and index is not None:
        found = replace(found, node_rank=index, source="label")
    return _single(replace(found, index=index))


def deployment(pod: Pod, member: Membership) -> Membership:
    """Return the Deployment of a pod: its ReplicaSets end in a hash, which is also a label."""
    suffix = pod.labels.get("pod-template-hash")
    if suffix and member.job.endswith(f"-{suffix}"):
        return replace(member, job=member.job.removesuffix(f"-{suffix}"), kind="Deployment")
    return member


def _torchrun(pod: Pod, member: Membership, *rank_variables: str) -> Membership:
    """Read torchrun's own variables: PET_NNODES is a number, or min:max for an elastic job."""
    stated = next(
        (n for name in rank_variables if (n := number(variable(pod, name))) is not None), None
    )
    return replace(
        member,
        node_rank=stated,
        local_world_size=number(variable(pod, "PET_NPROC_PER_NODE")),
        elastic=member.elastic or ":" in (variable(pod, "PET_NNODES") or ""),
        elastic_pods=_elastic_pods(variable(pod, "PET_NNODES") or ""),
        max_restarts=number(variable(pod, "PET_MAX_RESTARTS")),
        source="none" if stated is None else "environment",
    )


def _elastic_pods(stated: str) -> tuple[int, int] | None:
    """Read min:max; a number alone is not a range."""
    least, colon, most = stated.partition(":")
    low, high = number(least), number(most)
    if not colon or low is None or high is None or low > high:
        return None
    return low, high


def _sized(pod: Pod, member: Membership) -> Membership:
    """Add the world size: pods times processes per pod, if both are fixed."""
    pods = number(variable(pod, "PET_NNODES"))
    each = member.local_world_size
    size = None if pods is None or each is None else pods * each
    return _single(replace(member, world_size=size if size and size < MAX_RANKS else None))


def _single(member: Membership) -> Membership:
    """Use the pod's number for its process if the pod runs only one."""
    return replace(member, rank=member.node_rank) if member.local_world_size == 1 else member


def _json(text: str | None) -> dict[str, object]:
    try:
        data = untrusted_json.read(text or "{}")
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
