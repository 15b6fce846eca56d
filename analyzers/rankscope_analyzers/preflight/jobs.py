"""The jobs that manifests describe, and the other objects in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_analyzers.preflight.documents import Document
from rankscope_analyzers.preflight.job import Cluster, Job, Role, Settings
from rankscope_analyzers.preflight.kinds import KINDS
from rankscope_analyzers.preflight.runtimes import completed
from rankscope_analyzers.preflight.values import Object, mapping, mappings, text

JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
)
"""Labels and annotations that launchers put on the pods of one job, the outermost launcher's
first."""

USED = frozenset(
    {
        *("ConfigMap", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Service"),
        *("NetworkAttachmentDefinition", "ClusterTrainingRuntime", "TrainingRuntime", "Node"),
    }
)
"""Kinds in which checks look up objects."""

_CLUSTER_WIDE = frozenset({"PersistentVolume", "StorageClass", "ClusterTrainingRuntime", "Node"})


@dataclass(frozen=True, slots=True)
class Manifests:
    """The content of a set of manifests.

    Args:
        jobs: every job, pods of one job together.
        passed_over: objects of kinds that no check knows: source and kind.
    """

    jobs: Sequence[Job]
    passed_over: Sequence[tuple[str, str]]


def of_documents(documents: Iterable[Document], namespace: str, settings: Settings) -> Manifests:
    """Return the jobs of manifests.

    Args:
        documents: their objects.
        namespace: of objects that specify none.
        settings: what is known in addition to the manifests.
    """
    objects: dict[tuple[str, str, str], Object] = {}
    jobs: list[Job] = []
    passed_over: list[tuple[str, str]] = []
    cluster = Cluster(objects)
    for one in documents:
        kind, where = text(one.body.get("kind")), _namespace(one.body, namespace)
        group, _, _ = text(one.body.get("apiVersion")).rpartition("/")
        known = KINDS.get((group, kind))
        if known:
            name, roles = known[0], list(known[1](one.body))
            jobs.append(
                Job(name, where, _name(one.body), one.source, roles, one.body, cluster, settings)
            )
        elif kind in USED:
            objects[kind, "" if kind in _CLUSTER_WIDE else where, _name(one.body)] = one.body
        else:
            passed_over.append((one.source, kind or "an object without a kind"))
    return Manifests([with_runtime(job) for job in _grouped(jobs)], passed_over)


def _name(body: Object) -> str:
    metadata = mapping(body, "metadata")
    return text(metadata.get("name")) or text(metadata.get("generateName"))


def _namespace(body: Object, default: str) -> str:
    return text(mapping(body, "metadata").get("namespace")) or default


def with_runtime(job: Job) -> Job:
    """Return a TrainJob with what its runtime adds as far as that is known, others unchanged."""
    if job.kind != "TrainJob":
        return job
    roles = [
        completed(job.body, job.namespace, role, job.cluster) if role.missing else role
        for role in job.roles
    ]
    return replace(job, roles=roles)


def _grouped(jobs: Sequence[Job]) -> Iterator[Job]:
    """Yield jobs, with pods of the same job as one."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        owner = _owner(job) if job.kind == "Pod" else ""
        if owner:
            groups.setdefault((job.namespace, owner), []).append(job)
        else:
            yield job
    for (_, owner), pods in groups.items():
        roles = [of_pod(role) for pod in pods for role in pod.roles]
        yield replace(pods[0], kind="pods of", name=owner, roles=roles)


def _owner(pod: Job) -> str:
    labels: Mapping[str, object] = mapping(pod.body, "metadata", "labels")
    for label in JOB_LABELS:
        if text(labels.get(label)):
            return text(labels[label])
    owners = mappings(mapping(pod.body, "metadata").get("ownerReferences"))
    return next((text(one.get("name")) for one in owners if one.get("controller") is True), "")


def of_pod(role: Role) -> Role:
    """Return a pod's role, marked as one without ranks if its labels show it."""
    head = text(role.labels.get("ray.io/node-type")) == "head" and not role.gpus
    return replace(role, has_ranks=not role.launches and not head)
