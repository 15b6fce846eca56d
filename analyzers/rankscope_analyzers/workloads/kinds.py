"""The kinds of objects that are jobs, or describe one, and their location in the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rankscope_agent.contract import job_names
from rankscope_agent.contract.job_labels import DEFAULT_LABELS
from rankscope_analyzers.workloads import batch, kubeflow, ray, schedulers
from rankscope_analyzers.workloads.fields import Fields, flag, moment, objects, text, within
from rankscope_analyzers.workloads.state import Owner, Progress, WorkloadState

Role = Literal["job", "series", "about"]
"""`series`: creates jobs that count as its own, such as CronJob; `about`: describes the job that
owns it, or whose name it has."""

CLASS_LABELS = DEFAULT_LABELS["class"]
"""The labels that agents read from pods, unless others are configured."""

NO_CLASS = "default"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object.

    Args:
        kind: its name in objects.
        group: of the API, empty for the core.
        versions: of the group, the newest first.
        plural: its name in paths.
        progress: reads spec and status.
        role: its relation to a job.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    plural: str
    progress: Callable[[Fields], Progress]
    role: Role = "job"

    @property
    def resource(self) -> str:
        """Return its name in rules: `pytorchjobs.kubeflow.org`."""
        return f"{self.plural}.{self.group}"


_KUBEFLOW = tuple(
    Kind(kind, "kubeflow.org", ("v1",), f"{kind.lower()}s", kubeflow.progress)
    for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
)
_KUEUE = ("v1beta2", "v1beta1")
_COSCHEDULING, _LWS = "scheduling.x-k8s.io", "leaderworkerset.x-k8s.io"

KINDS: tuple[Kind, ...] = (
    *_KUBEFLOW,
    Kind("MPIJob", "kubeflow.org", ("v2beta1", "v1"), "mpijobs", kubeflow.progress),
    Kind("TrainJob", "trainer.kubeflow.org", ("v1alpha1",), "trainjobs", batch.train_job),
    Kind("JobSet", "jobset.x-k8s.io", ("v1alpha2",), "jobsets", batch.job_set),
    Kind("Job", "batch", ("v1",), "jobs", batch.job),
    Kind("CronJob", "batch", ("v1",), "cronjobs", batch.cron_job, "series"),
    Kind("Job", "batch.volcano.sh", ("v1alpha1",), "jobs", schedulers.volcano_job),
    Kind("Workload", "kueue.x-k8s.io", _KUEUE, "workloads", schedulers.workload, "about"),
    Kind("PodGroup", _COSCHEDULING, ("v1alpha1",), "podgroups", schedulers.pod_group, "about"),
    Kind("RayJob", "ray.io", ("v1", "v1alpha1"), "rayjobs", ray.ray_job),
    Kind("LeaderWorkerSet", _LWS, ("v1",), "leaderworkersets", schedulers.leader_worker_set),
)


def read(
    kind: Kind, found: Fields, class_labels: Sequence[str] = CLASS_LABELS
) -> WorkloadState | None:
    """Return the state of an object, None if it has no name, namespace or uid that identifies it.

    Args:
        kind: of the object.
        found: the object's JSON; fields that are unknown or of another type count as missing.
        class_labels: of its class; the first one that it has counts.
    """
    metadata = within(found, "metadata")
    namespace, name, uid = (text(metadata, key) for key in ("namespace", "name", "uid"))
    if not (uid and job_names.is_name(namespace) and job_names.is_name(name)):
        return None
    return WorkloadState(
        kind.kind,
        namespace,
        name,
        uid,
        moment(metadata, "creationTimestamp"),
        job_class(found, class_labels),
        _owner(metadata),
        kind.progress(found),
    )


def job_class(found: Fields, class_labels: Sequence[str] = CLASS_LABELS) -> str:
    """Return the class of a job: by its own label, else by its priority."""
    labels = within(found, "metadata", "labels")
    names = [text(labels, key) for key in class_labels]
    names += [_priority(within(found, "spec"))]
    return next((name for name in names if name and job_names.is_name(name)), NO_CLASS)


def _priority(spec: Fields) -> str:
    """Return the name of a priority class, wherever the kind has it."""
    for place in _places(spec):
        for key in ("priorityClassName", "priorityClass"):
            if text(place, key):
                return text(place, key)
    return ""


def _places(spec: Fields) -> Iterator[Fields]:
    """Yield the parts of a spec that may name a priority: its own, then those of its pods."""
    yield spec
    yield within(spec, "runPolicy", "schedulingPolicy")
    yield within(spec, "template", "spec")
    yield within(spec, "jobTemplate", "spec", "template", "spec")
    for key in spec:
        if key.endswith("ReplicaSpecs"):
            roles = within(spec, key)
            yield from (within(roles, role, "template", "spec") for role in roles)
    for one in objects(spec, "replicatedJobs"):
        yield within(one, "template", "spec", "template", "spec")
    yield within(spec, "rayClusterSpec", "headGroupSpec", "template", "spec")
    yield within(spec, "leaderWorkerTemplate", "workerTemplate", "spec")


def _owner(metadata: Fields) -> Owner | None:
    for one in objects(metadata, "ownerReferences"):
        if flag(one, "controller"):
            return Owner(text(one, "kind"), text(one, "name"), text(one, "uid"))
    return None
