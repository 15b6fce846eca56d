"""The job that a pod belongs to, for every launcher: a table in which the first match wins.

Labels and variables are those in the launchers' own sources: Kubeflow Training Operator release-1.9
and Trainer v2, MPI Operator v2beta1, JobSet, LeaderWorkerSet v1, Volcano, KubeRay, DLRover, Slinky,
Argo Workflows and Kubernetes' own controllers. Users' templates may lose labels, so the controller
in `ownerReferences` is used as well.

The index of a pod is never used as the rank of a process unless the pod is known to run a single
process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rankscope_agent.contract.job_names import MAX_NAME, is_name
from rankscope_agent.sources.pods import launcher_ranks as ranks
from rankscope_agent.sources.pods.membership import Membership, label, number
from rankscope_agent.sources.pods.records import Pod

KUBEFLOW = "training.kubeflow.org/"
JOBSET = "jobset.sigs.k8s.io/"
LWS = "leaderworkerset.sigs.k8s.io/"
VOLCANO = "volcano.sh/"
RAY = "ray.io/"
DLROVER = "elasticjob.dlrover/"
SLURM_JOB = "scheduler.slinky.slurm.net/slurm-jobid"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

_CRON_RUN = re.compile(r"(?P<cron>.+)-[23][0-9]{7}")
"""A CronJob names its Jobs after the minute since 1970, which from 2008 to 2046 has eight digits
and begins with 2 or 3 (kubernetes pkg/controller/cronjob/utils.go)."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A row of the table.

    Args:
        kind: of the job.
        groups: API groups of the owner, without version; empty if no owner identifies it.
        owner_kinds: kinds of owners whose pods are this launcher's; the owner's name is the job's.
        names: labels with the job's name, which take precedence over the owner's.
        required: a label without which `names` do not indicate this launcher; (key, value), an
            empty value stands for any.
        roles: labels with the pod's role.
        indices: labels with its index.
        attempts: labels that count restarts of the whole job.
        bystanders: roles whose processes are not ranks.
        read: finds ranks and sizes, given the values of labels.
    """

    kind: str
    groups: tuple[str, ...] = ()
    owner_kinds: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    required: tuple[str, str] | None = None
    roles: tuple[str, ...] = ()
    indices: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    bystanders: tuple[str, ...] = ()
    read: Callable[[Pod, Membership], Membership] = ranks.unknown


def _kubeflow(
    kind: str,
    read: Callable[[Pod, Membership], Membership],
    bystanders: tuple[str, ...] = (),
    groups: tuple[str, ...] = ("kubeflow.org",),
) -> Launcher:
    """Return a row for a kind of the Training Operator v1; all of them use the same labels."""
    return Launcher(
        kind=kind,
        groups=groups,
        owner_kinds=(kind,),
        roles=(KUBEFLOW + "replica-type", KUBEFLOW + "job-role"),
        indices=(KUBEFLOW + "replica-index",),
        bystanders=bystanders,
        read=read,
    )


LAUNCHERS: Sequence[Launcher] = (
    Launcher(
        kind="TrainJob",
        names=(JOBSET + "jobset-name",),
        required=("trainer.kubeflow.org/trainjob-ancestor-step", ""),
        roles=("trainer.kubeflow.org/trainjob-ancestor-step", JOBSET + "replicatedjob-name"),
        indices=(COMPLETION_INDEX,),
        attempts=(JOBSET + "restart-attempt",),
        bystanders=("dataset-initializer", "model-initializer"),
        read=ranks.train_job,
    ),
    Launcher(
        kind="MPIJob",
        groups=("kubeflow.org",),
        owner_kinds=("MPIJob",),
        names=(KUBEFLOW + "job-name",),
        required=(KUBEFLOW + "operator-name", "mpi-operator"),
        roles=(KUBEFLOW + "replica-type", KUBEFLOW + "job-role"),
        indices=(KUBEFLOW + "replica-index",),
        read=ranks.mpi_job,
    ),
    _kubeflow("PyTorchJob", ranks.pytorch_job),
    _kubeflow("TFJob", ranks.tf_job, bystanders=("ps", "evaluator")),
    _kubeflow("XGBoostJob", ranks.one_process_by("RANK", "WORLD_SIZE")),
    _kubeflow("PaddleJob", ranks.paddle_job),
    _kubeflow("JAXJob", ranks.one_process_by("PROCESS_ID", "NUM_PROCESSES")),
    Launcher(
        kind="ElasticJob",
        groups=("elastic.iml.github.io",),
        owner_kinds=("ElasticJob",),
        names=(DLROVER + "name",),
        roles=(DLROVER + "replica-type",),
        indices=(DLROVER + "replica-index",),
        attempts=(DLROVER + "relaunch-count",),
        bystanders=("dlrover-master", "master", "ps", "evaluator"),
        read=ranks.dlrover_job,
    ),
    Launcher(
        kind="RayJob",
        names=(RAY + "originated-from-cr-name",),
        required=(RAY + "originated-from-crd", "RayJob"),
        roles=(RAY + "node-type",),
        indices=(RAY + "worker-group-replica-index",),
        read=ranks.ray_job,
    ),
    Launcher(
        kind="RayCluster",
        groups=("ray.io",),
        owner_kinds=("RayCluster",),
        names=(RAY + "cluster",),
        roles=(RAY + "node-type",),
        indices=(RAY + "worker-group-replica-index",),
        read=ranks.ray_job,
    ),
    Launcher(
        kind="LeaderWorkerSet",
        names=(LWS + "name",),
        indices=(LWS + "worker-index",),
        read=ranks.leader_worker_set,
    ),
    Launcher(
        kind="VolcanoJob",
        groups=("batch.volcano.sh",),
        owner_kinds=("Job",),
        names=(VOLCANO + "job-name",),
        roles=(VOLCANO + "task-spec",),
        indices=(VOLCANO + "task-index",),
        attempts=(VOLCANO + "job-retry-count",),
        read=ranks.volcano_job,
    ),
    Launcher(
        kind="JobSet",
        names=(JOBSET + "jobset-name",),
        roles=(JOBSET + "replicatedjob-name",),
        indices=(COMPLETION_INDEX,),
        attempts=(JOBSET + "restart-attempt",),
        read=ranks.job_set,
    ),
    Launcher(
        kind="Job",
        groups=("batch",),
        owner_kinds=("Job",),
        names=("batch.kubernetes.io/job-name", "job-name"),
        indices=(COMPLETION_INDEX,),
        read=ranks.indexed_job,
    ),
    Launcher(
        kind="Workflow",
        groups=("argoproj.io",),
        owner_kinds=("Workflow",),
        names=("workflows.argoproj.io/workflow",),
    ),
    Launcher(
        kind="PodGroup",
        names=("kueue.x-k8s.io/pod-group-name",),
        indices=("kueue.x-k8s.io/pod-group-pod-index",),
    ),
    Launcher(
        kind="StatefulSet",
        groups=("apps",),
        owner_kinds=("StatefulSet",),
        indices=("apps.kubernetes.io/pod-index",),
        read=ranks.stateful_set,
    ),
    Launcher(
        kind="ReplicaSet", groups=("apps",), owner_kinds=("ReplicaSet",), read=ranks.deployment
    ),
)
"""From the most to the least specific: a TrainJob's pods also belong to a JobSet and to a Job."""

NO_JOB_OWNERS = frozenset(("DaemonSet", "Node", "NodeSet"))
"""Owners whose pods belong to the node: agents, static pods, and Slinky's slurmd pods, whose jobs
are only named in the environment of their processes."""

_QUEUES = (
    "kueue.x-k8s.io/queue-name",
    "kueue.x-k8s.io/local-queue-name",
    "kueue.x-k8s.io/cluster-queue-name",
    "volcano.sh/queue-name",
    "scheduling.volcano.sh/queue-name",
)

_GANGS = (
    "scheduling.x-k8s.io/pod-group",
    "scheduling.k8s.io/group-name",
    "kueue.x-k8s.io/pod-group-name",
)


_NAMING = (*_QUEUES, *_GANGS, *(name for launcher in LAUNCHERS for name in launcher.names))
"""Characters that may become part of a name or label."""

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")


def membership(pod: Pod) -> Membership | None:
    """Return a pod's membership in a job; None for pods that belong to no job."""
    if pod.owner and pod.owner.kind in NO_JOB_OWNERS:
        return None
    for launcher in LAUNCHERS:
        job = _job_name(launcher, pod)
        if job:
            return _with_queue(pod, _read(launcher, pod, job))
    if pod.owner is None or not is_name(pod.owner.name):
        return _with_queue(pod, Membership(pod.name, "Pod"))
    # A controller that is not in the table still counts as one job, under its own name.
    kind = pod.owner.kind if _KIND.fullmatch(pod.owner.kind) else "unknown"
    return _with_queue(pod, Membership(pod.owner.name, kind))


def ill_named(pod: Pod) -> str:
    """Return the annotation or owner of a pod that has an invalid job name; empty if none.

    Whoever creates a pod chooses both: the API server accepts any text there.
    """
    for key in _NAMING:
        found = pod.annotations.get(key)
        if found and not is_name(found):
            return f"annotation {key} is not a name: {found[:MAX_NAME]!a}"
    if pod.owner and not is_name(pod.owner.name):
        return f"its owner's name is invalid: {pod.owner.name[:MAX_NAME]!a}"
    return ""


def job_id(pod: Pod, member: Membership) -> str:
    """Return the unique name of a job: namespace/name."""
    return f"{pod.namespace}/{member.job}"


def _job_name(launcher: Launcher, pod: Pod) -> str:
    """Return the job's name if the pod is this launcher's, else an empty text."""
    named = label(pod, *launcher.names)
    if named and _has(pod, launcher.required):
        return named
    owner = pod.owner
    if owner is None or owner.kind not in launcher.owner_kinds or not is_name(owner.name):
        return ""
    return owner.name if owner.api_version.partition("/")[0] in launcher.groups else ""


def _has(pod: Pod, required: tuple[str, str] | None) -> bool:
    if required is None:
        return True
    key, value = required
    found = label(pod, key)
    return bool(found) and value in {"", found}


def _read(launcher: Launcher, pod: Pod, job: str) -> Membership:
    role = label(pod, *launcher.roles).lower()
    member = Membership(
        job=job,
        kind=launcher.kind,
        role=role,
        trains=role not in launcher.bystanders,
        index=number(label(pod, *launcher.indices)),
        attempt=number(label(pod, *launcher.attempts)),
        parent=_parent(launcher, pod, job),
    )
    found = launcher.read(pod, member)
    # Roles without ranks have none, whatever variables their template copies.
    return found if found.trains else replace(found, node_rank=None, rank=None)


def _parent(launcher: Launcher, pod: Pod, job: str) -> str:
    cron = _CRON_RUN.fullmatch(job) if launcher.kind == "Job" else None
    if cron:
        return f"CronJob/{cron['cron']}"
    slurm = label(pod, SLURM_JOB)
    return f"SlurmJob/{slurm}" if slurm else ""


def _with_queue(pod: Pod, member: Membership) -> Membership:
    gang = pod.scheduling_group if is_name(pod.scheduling_group) else label(pod, *_GANGS)
    return replace(member, queue=label(pod, *_QUEUES), gang=gang)
