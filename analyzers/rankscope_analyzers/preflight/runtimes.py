"""A TrainJob completed by its runtime, if the manifests include it."""

from __future__ import annotations

from dataclasses import replace

from rankscope_analyzers.preflight.job import Cluster, Key, Role
from rankscope_analyzers.preflight.values import Object, mapping, mappings, number, text

OVERRIDES = ("runtimePatches", "podTemplateOverrides", "podSpecOverrides")
"""Fields with changes to the runtime, in versions 2.2, 2.1 and 2.0 of Kubeflow Trainer."""

_MULTI_NODE = "node"  # the replicated job of a runtime that holds the ranks


def runtime_of(body: Object, namespace: str) -> Key:
    """Return kind, namespace and name of a TrainJob's runtime."""
    reference = mapping(body, "spec", "runtimeRef")
    kind = text(reference.get("kind")) or "ClusterTrainingRuntime"
    place = "" if kind == "ClusterTrainingRuntime" else namespace
    return kind, place, text(reference.get("name"))


def completed(body: Object, namespace: str, role: Role, cluster: Cluster) -> Role:
    """Return a TrainJob's role with what its runtime adds, unchanged if that is unknown."""
    key = runtime_of(body, namespace)
    runtime = cluster.get(*key)
    if runtime is None:
        why = f"the runtime {key[2]!r} of the TrainJob {cluster.unknown(*key)}"
        return replace(role, missing=why)
    changed = next((name for name in OVERRIDES if name in mapping(body, "spec")), "")
    if changed:
        return replace(role, missing=f"{changed} of the TrainJob may change what its runtime gives")
    template = _template(runtime)
    containers = mappings(mapping(template, "spec").get("containers"))
    if not containers:
        return role
    nodes = role.replicas
    if nodes is None:
        nodes = number(mapping(runtime, "spec", "mlPolicy").get("numNodes")) or 1
    merged = [_merged(one, role.trainer) if one is containers[0] else one for one in containers]
    spec = {**mapping(template, "spec"), "containers": merged}
    return Role(role.name, nodes, mapping(template, "metadata"), spec)


def _template(runtime: Object) -> Object:
    for one in mappings(mapping(runtime, "spec", "template", "spec").get("replicatedJobs")):
        if text(one.get("name")) == _MULTI_NODE:
            return mapping(one, "template", "spec", "template")
    return {}


def _merged(container: Object, own: Object) -> Object:
    env = [*mappings(container.get("env")), *mappings(own.get("env"))]
    resources = mapping(own, "resources") or mapping(container, "resources")
    kept = {key: value for key, value in own.items() if key != "name"}
    return {**container, **kept, "env": env, "resources": resources}
