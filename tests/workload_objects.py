"""Objects of a cluster as their API types have them: jobs of all kinds, and pods."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from rankscope_analyzers.workloads.kinds import KINDS, Kind

START = 1_800_000_000.0
"""Unix time at which the jobs here are created."""


def stamp(seconds: float) -> str:
    """Return a time so many seconds after the start, as Kubernetes writes it."""
    at = datetime.fromtimestamp(START + seconds, timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def kind(name: str, group: str | None = None) -> Kind:
    """Return a row of the table of kinds."""
    return next(one for one in KINDS if one.kind == name and group in {None, one.group})


def condition(
    name: str, at: float = 60, reason: str = "", message: str = "", status: str = "True"
) -> dict[str, Any]:
    said = {"reason": reason, "message": message}
    return {"type": name, "status": status, "lastTransitionTime": stamp(at), **said}


def thing(
    of: Kind,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    name: str = "train",
    uid: str = "",
    owner: tuple[str, str, str] | None = None,
    created: float = 0,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return an object; owner is kind, name and uid of its controller."""
    metadata: dict[str, Any] = {
        "namespace": "team",
        "name": name,
        "uid": uid or f"uid-{of.kind}-{name}",
        "creationTimestamp": stamp(created),
        "labels": labels or {},
    }
    if owner:
        keys = dict(zip(("kind", "name", "uid"), owner, strict=True))
        metadata["ownerReferences"] = [{**keys, "apiVersion": "v1", "controller": True}]
    api_version = f"{of.group}/{of.versions[0]}" if of.group else of.versions[0]
    found = {"apiVersion": api_version, "kind": of.kind, "metadata": metadata}
    return {**found, "spec": spec or {}, "status": status or {}}


def pod(
    name: str,
    labels: dict[str, str],
    *,
    node: str = "gpu-1",
    created: float = 1,
    scheduled: float | None = 5,
    started: float | None = 35,
    gpus: int = 8,
    phase: str = "Running",
    waiting: str = "",
    ended: tuple[str, int, float] | None = None,
    conditions: list[dict[str, Any]] | None = None,
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a pod; ended is reason, exit code and time of its container's last end."""
    container: dict[str, Any] = {"name": "main", "state": {}, "lastState": {}}
    if waiting:
        container["state"] = {"waiting": {"reason": waiting}}
    elif started is not None and phase == "Running":
        container["state"] = {"running": {"startedAt": stamp(started)}}
    if ended:
        reason, code, at = ended
        end = {"terminated": {"reason": reason, "exitCode": code, "finishedAt": stamp(at)}}
        container["state" if phase == "Failed" else "lastState"] = end
    said = conditions or []
    if scheduled is not None:
        said = [*said, condition("PodScheduled", scheduled)]
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    if scheduled is not None:
        spec["nodeName"] = node
    status = {"phase": phase, "conditions": said, "containerStatuses": [container], **(more or {})}
    metadata = {"namespace": "team", "name": name, "uid": f"pod-{name}", "labels": labels}
    return {
        "metadata": {**metadata, "creationTimestamp": stamp(created)},
        "spec": spec,
        "status": status,
    }
