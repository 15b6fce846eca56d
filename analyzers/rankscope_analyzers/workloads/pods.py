"""What a pod shows about its job: why it waits, how it started, what ended it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, get_args

from rankscope_agent.contract import job_names, pod_reasons
from rankscope_analyzers.workloads import causes
from rankscope_analyzers.workloads.fields import Fields, flag, moment, objects, text, within
from rankscope_analyzers.workloads.state import Cause

Waiting = Literal[
    "quota", "gang", "pvc", "no_gpu", "affinity", "taint", "resources", "image", "config", "other"
]
WAITING: tuple[Waiting, ...] = get_args(Waiting)
"""Why a job or a pod does not run yet. `quota`: its queue has not admitted it; `taint`: it does not
tolerate the nodes' taints; `resources`: processors, memory or other devices are short."""

JOB_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "ray.io/originated-from-cr-name",
    "leaderworkerset.sigs.k8s.io/name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels with the name of a pod's job, the outermost launcher's first. A TrainJob's JobSet has its
name."""

ROLE_LABELS = (
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "volcano.sh/task-spec",
    "ray.io/node-type",
)

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
GPU_PARTS = "nvidia.com/mig-"

# Parts of the scheduler's sentence in PodScheduled; the first that occurs wins. A pod that waits
# for a GPU is also told which nodes have none, and are therefore unsuitable.
_UNSCHEDULABLE: tuple[tuple[str, Waiting], ...] = (
    ("persistentvolumeclaim", "pvc"),
    ("volume node affinity", "pvc"),
    ("pod group", "gang"),
    ("podgroup", "gang"),
    ("minmember", "gang"),
    ("gang", "gang"),
    ("insufficient nvidia.com/", "no_gpu"),
    ("insufficient amd.com/gpu", "no_gpu"),
    ("cannot allocate all claims", "no_gpu"),
    ("insufficient ", "resources"),
    ("node affinity", "affinity"),
    ("node selector", "affinity"),
    ("topology spread", "affinity"),
    ("anti-affinity", "affinity"),
    ("taint", "taint"),
)

# The scheduler's message names each kind of node that it tried, and is a sentence or two long.
_LONGEST_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod at one moment.

    Args:
        namespace: that it is in.
        job: name of its job within the namespace.
        uid: of the pod.
        role: within the job, empty if its launcher gives none.
        active: True if it has not ended and is not being deleted.
        scheduled: Unix time at which it got a node, None while it has none.
        running: True if all its containers have started.
        gpus: whole GPUs that it requests, or parts of GPUs, or claimed devices.
        waiting: why it does not run, None if it does.
        failure: why it last failed, empty if it did not.
        failed: Unix time of that.
        created: Unix time.
        startup: seconds by phase, of phases that are over.
        node: that it is on, empty without one.
    """

    namespace: str
    job: str
    uid: str
    role: str
    active: bool
    scheduled: float | None
    running: bool
    gpus: int
    waiting: Waiting | None
    failure: Cause
    failed: float | None
    created: float | None
    startup: Mapping[str, float] = field(default_factory=dict)
    node: str = ""


def read(found: Fields) -> PodFacts | None:
    """Return the facts about a job's pod, None if it belongs to no job."""
    metadata, spec, status = (within(found, key) for key in ("metadata", "spec", "status"))
    namespace, uid, job = text(metadata, "namespace"), text(metadata, "uid"), _job(metadata)
    if not (uid and job_names.is_name(namespace) and job_names.is_name(job)):
        return None
    ended = text(status, "phase") in {"Succeeded", "Failed"}
    scheduled = _scheduled(status) if text(spec, "nodeName") else None
    failure, failed = _failure(status)
    containers = objects(status, "containerStatuses")
    running = bool(containers) and all(within(one, "state", "running") for one in containers)
    labels = within(metadata, "labels")
    return PodFacts(
        namespace,
        job,
        uid,
        next((text(labels, key) for key in ROLE_LABELS if text(labels, key)), ""),
        active=not ended and "deletionTimestamp" not in metadata,
        scheduled=scheduled,
        running=running and not ended,
        gpus=gpus(spec),
        waiting=None if ended or running else _waiting(status, containers),
        failure=failure,
        failed=failed,
        created=moment(metadata, "creationTimestamp"),
        startup=dict(_startup(metadata, status, scheduled)),
        node=text(spec, "nodeName"),
    )


def _job(metadata: Fields) -> str:
    labels = within(metadata, "labels")
    named = next((text(labels, key) for key in JOB_LABELS if text(labels, key)), "")
    if named:
        return named
    owners = (one for one in objects(metadata, "ownerReferences") if flag(one, "controller"))
    return next((text(one, "name") for one in owners if text(one, "kind").endswith("Job")), "")


def gpus(spec: Fields) -> int:
    """Return how many GPUs or parts of them a pod requests; claims of devices count one each."""
    wanted = 0
    for one in objects(spec, "containers"):
        limits = within(one, "resources", "limits")
        for name in limits:
            if name in GPU_RESOURCES or str(name).startswith(GPU_PARTS):
                wanted += _quantity(limits[name])
    return wanted or len(objects(spec, "resourceClaims"))


def _quantity(value: object) -> int:
    """Return a number of devices; extended resources are whole numbers."""
    number = str(value)
    return int(number) if number.isdecimal() and len(number) <= len("99999") else 0


def _scheduled(status: Fields) -> float | None:
    for one in objects(status, "conditions"):
        if text(one, "type") == "PodScheduled" and one.get("status") == "True":
            return moment(one, "lastTransitionTime")
    return moment(status, "startTime")


def _waiting(status: Fields, containers: Iterable[Fields]) -> Waiting:
    for one in objects(status, "conditions"):
        if text(one, "type") == "PodScheduled" and one.get("status") == "False":
            if text(one, "reason") == "SchedulingGated":
                return "quota"
            return unschedulable(one.get("message"))
    for one in chain(objects(status, "initContainerStatuses"), containers):
        cause = causes.of_pod(text(within(one, "state", "waiting"), "reason"))
        reason = pod_reasons.WAITING.get(text(within(one, "state", "waiting"), "reason"))
        if reason == pod_reasons.IMAGE_PULL or cause == "image":
            return "image"
        if cause == "config":
            return "config"
    return "other"


def unschedulable(message: object) -> Waiting:
    """Return why a pod gets no node, from the scheduler's message."""
    words = message[:_LONGEST_MESSAGE].lower() if isinstance(message, str) else ""
    return next((reason for part, reason in _UNSCHEDULABLE if part in words), "other")


def _failure(status: Fields) -> tuple[Cause, float | None]:
    """Return the cause and the time of the last failure of a pod, or of its containers."""
    for one in objects(status, "conditions"):
        if text(one, "type") == pod_reasons.DISRUPTED and one.get("status") == "True":
            return causes.of_pod(text(one, "reason")), moment(one, "lastTransitionTime")
    ends = [
        (moment(end, "finishedAt") or 0.0, causes.of_pod(text(end, "reason")))
        for one in (
            *objects(status, "initContainerStatuses"),
            *objects(status, "containerStatuses"),
        )
        for end in (within(one, "state", "terminated"), within(one, "lastState", "terminated"))
        if end.get("exitCode")
    ]
    if text(status, "phase") == "Failed" and text(status, "reason"):
        of_pod = causes.of_pod(text(status, "reason"))
        if of_pod != "unknown":
            return of_pod, max((at for at, _ in ends), default=None)
    if not ends:
        return "", None
    at, cause = max(ends)
    return cause, at or None


def _startup(
    metadata: Fields, status: Fields, scheduled: float | None
) -> Iterable[tuple[str, float]]:
    """Yield the seconds of the phases of a pod's start: schedule, image, init.

    Kubernetes does not record when an image was ready: the time between the node and the first
    container that is not an init container's is spent on volumes, network and image.
    """
    created = moment(metadata, "creationTimestamp")
    if scheduled is None or created is None:
        return
    yield "schedule", max(0.0, scheduled - created)
    starts = [
        moment(within(one, "state", state), "startedAt")
        for one in objects(status, "containerStatuses")
        for state in ("running", "terminated")
    ]
    first = min((at for at in starts if at is not None), default=None)
    if first is None:
        return
    init = sum(map(_ran, objects(status, "initContainerStatuses")))
    yield "init", init
    yield "image", max(0.0, first - scheduled - init)


def _ran(container: Fields) -> float:
    end = within(container, "state", "terminated")
    began, ended = moment(end, "startedAt"), moment(end, "finishedAt")
    return 0.0 if began is None or ended is None else max(0.0, ended - began)
