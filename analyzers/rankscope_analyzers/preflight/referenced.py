"""Which other objects of a cluster determine the checks of a job. Secrets are never among them.

Pure: names only; `running` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_analyzers.preflight.job import Job, Key, Role
from rankscope_analyzers.preflight.networks import requested
from rankscope_analyzers.preflight.runtimes import runtime_of
from rankscope_analyzers.preflight.values import mapping, mappings, text


def referenced(job: Job) -> Iterator[Key]:
    """Yield kind, namespace and name of each object that a job, or what is known of it, names."""
    if any(role.missing for role in job.roles):
        yield runtime_of(job.body, job.namespace)
    for role in job.roles:
        yield from _networks(job, role)
        yield from _claims(job, role)
        yield from _config_maps(job, role)
        if text(role.spec.get("nodeName")):
            yield "Node", "", text(role.spec.get("nodeName"))


def _networks(job: Job, role: Role) -> Iterator[Key]:
    try:
        networks = requested(role)
    except ValueError:  # a check reports it
        return
    for one in networks:
        yield "NetworkAttachmentDefinition", one.namespace or job.namespace, one.name


def _claims(job: Job, role: Role) -> Iterator[Key]:
    for volume in mappings(role.spec.get("volumes")):
        name = text(mapping(volume, "persistentVolumeClaim").get("claimName"))
        if not name:
            continue
        yield "PersistentVolumeClaim", job.namespace, name
        spec = mapping(job.cluster.get("PersistentVolumeClaim", job.namespace, name), "spec")
        if text(spec.get("volumeName")):
            yield "PersistentVolume", "", text(spec.get("volumeName"))
        if text(spec.get("storageClassName")):
            yield "StorageClass", "", text(spec.get("storageClassName"))


def _config_maps(job: Job, role: Role) -> Iterator[Key]:
    references = [mapping(one, "configMapRef") for one in mappings(role.trainer.get("envFrom"))]
    references += [
        mapping(one, "valueFrom", "configMapKeyRef") for one in mappings(role.trainer.get("env"))
    ]
    for one in references:
        if text(one.get("name")):
            yield "ConfigMap", job.namespace, text(one.get("name"))
