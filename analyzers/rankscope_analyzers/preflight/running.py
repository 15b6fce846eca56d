"""A job in the cluster: its pods, the object that creates them, and the objects that both name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankscope_analyzers.intake import job_objects
from rankscope_analyzers.intake.cluster import ClusterAccess, ClusterError
from rankscope_analyzers.intake.job_objects import MAX_PODS, JobObjects
from rankscope_analyzers.intake.kubernetes_api import Api
from rankscope_analyzers.intake.named_objects import NamedObjects, is_object_name
from rankscope_analyzers.preflight import kinds
from rankscope_analyzers.preflight.job import Cluster, Job, Settings
from rankscope_analyzers.preflight.jobs import of_pod, with_runtime
from rankscope_analyzers.preflight.referenced import referenced
from rankscope_analyzers.preflight.values import Object, mapping, mappings, text
from rankscope_analyzers.workloads.kinds import KINDS

ENDED = frozenset(("Succeeded", "Failed"))
ROUNDS = 3
"""Rounds of reading named objects: a runtime names claims, and a claim its volume."""


@dataclass(frozen=True, slots=True)
class Running:
    """A job of the cluster.

    Args:
        job: with all objects that it names and that could be read.
        nodes: that its pods are on.
        not_read: sentences about what could not be read.
    """

    job: Job
    nodes: Sequence[str]
    not_read: Sequence[str]


def read(job_id: str, api: Api, access: ClusterAccess, settings: Settings) -> Running:
    """Return a job in the cluster, from its object alone while it has no pods.

    Args:
        job_id: namespace/name.
        api: the API server.
        access: the same server, for the pods.
        settings: what is known in addition.

    Raises:
        ClusterError: there is no such job, its pods have ended, or the API server refuses.
    """
    namespace, slash, name = job_id.partition("/")
    if not slash or not is_object_name(namespace) or not is_object_name(name):
        raise ClusterError(f"a job in a cluster is called namespace/name, not {job_id!r}")
    found = job_objects.read(job_id, access)
    if found.pods:
        job = _of_pods(job_id, found, settings)
    else:
        job = _of_object(api, job_id, found, settings)
    known = NamedObjects()
    hidden = known.read_services(api, namespace)
    not_read = [*(found.not_read if found.pods else ())]
    not_read += [f"services of namespace {namespace}: {hidden}"] if hidden else []
    for _ in range(ROUNDS):
        known.read(api, referenced(job))
        job = _with(job, known)
    not_read += [f"{kind} {name}: {why}" for (kind, _, name), why in known.unread.items()]
    nodes = {text(role.spec.get("nodeName")) for role in job.roles} - {""}
    return Running(job, sorted(nodes), not_read)


def _with(job: Job, known: NamedObjects) -> Job:
    cluster = Cluster(known.found, known.unread, known.absent)
    return with_runtime(replace(job, cluster=cluster))


def _of_pods(job_id: str, found: JobObjects, settings: Settings) -> Job:
    """Return a job of pods that have not ended, with the object that creates them.

    Raises:
        ClusterError: all of them have ended.
    """
    namespace, _, name = job_id.partition("/")
    lasting = [one for one in found.pods if not _has_ended(one)]
    if not lasting:
        raise ClusterError(f"all {len(found.pods)} pods of job {job_id} have ended")
    roles = [of_pod(role) for pod in lasting for role in kinds.roles_of_pod(pod)]
    source = f"{len(lasting)} pods in the cluster"
    if len(found.pods) == MAX_PODS:
        source = f"the first {source}"
    kind, body = _maker(found.owners)
    missing = ""
    if not body and (found.not_read or _owned(lasting)):
        missing = f"the object that created the pods is not read: {'; '.join(found.not_read)}"
    return Job(
        kind or "pods of", namespace, name, source, roles, body, settings=settings, missing=missing
    )


def _has_ended(pod: Object) -> bool:
    leaving = mapping(pod, "metadata").get("deletionTimestamp")
    return bool(leaving) or text(mapping(pod, "status").get("phase")) in ENDED


def _owned(pods: Sequence[Object]) -> bool:
    return any(mappings(mapping(pod, "metadata").get("ownerReferences")) for pod in pods)


def _maker(owners: Sequence[Mapping[str, Any]]) -> tuple[str, Object]:
    """Return the kind and the object that defines how often a job restarts.

    That is the outermost owner; a TrainJob leaves it to the JobSet that it creates.
    """
    known = [(kinds.kind_of(one), one) for one in owners]
    usable = [(kind, one) for kind, one in known if kind]
    names = {text(mapping(one, "metadata").get("name")) for _, one in usable}
    outermost = [
        (kind, one)
        for kind, one in usable
        if not {
            text(owner.get("name"))
            for owner in mappings(mapping(one, "metadata").get("ownerReferences"))
        }
        & names
    ]
    job_sets = [(kind, one) for kind, one in usable if kind == "JobSet"]
    if outermost and outermost[0][0] == "TrainJob" and job_sets:
        return job_sets[0]
    return outermost[0] if outermost else ("", {})


def _of_object(api: Api, job_id: str, found: JobObjects, settings: Settings) -> Job:
    """Return a job that has no pods so far, from its object.

    Raises:
        ClusterError: no object of a known kind has this name, or none may be read.
    """
    namespace, _, name = job_id.partition("/")
    asked = NamedObjects()
    for kind in KINDS:
        if (kind.group, kind.kind) not in kinds.KINDS:
            continue
        for version in kind.versions:
            key = (kind.resource, namespace, name)
            path = f"/apis/{kind.group}/{version}/namespaces/{namespace}/{kind.plural}/{name}"
            asked.ask(api, key, path)
            body = asked.found.get(key)
            if body is not None:
                called, roles = kinds.KINDS[kind.group, kind.kind]
                source = "in the cluster, without pods"
                return Job(
                    *(called, namespace, name, source, list(roles(body)), body), settings=settings
                )
    hidden = [f"{kind}: {why}" for (kind, _, _), why in asked.unread.items()]
    raise ClusterError("; ".join([*found.not_read, *hidden[:3]]))
