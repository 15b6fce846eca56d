"""Pods as launchers make them, written from what the launchers' sources say they put on pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UID = "0f9d2c1e-7a51-4b7e-9a35-{:012d}"


def uid(number: int) -> str:
    return UID.format(number)


def pod(
    name: str = "train-worker-0",
    namespace: str = "ml",
    *,
    number: int = 1,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: tuple[str, str, str] | None = None,
    env: Mapping[str, Any] | None = None,
    limits: Mapping[str, str] | None = None,
    phase: str = "Running",
    container_id: str = "",
    **metadata: Any,
) -> dict[str, Any]:
    """A pod; `owner` is (apiVersion, kind, name), values of `env` that are dicts are valueFrom."""
    data: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid(number),
            "resourceVersion": str(100 + number),
            "creationTimestamp": f"2026-11-20T10:{number // 60 % 60:02d}:{number % 60:02d}Z",
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            **metadata,
        },
        "spec": {
            "nodeName": "n1",
            "containers": [
                {
                    "name": "main",
                    "env": [_entry(key, value) for key, value in (env or {}).items()],
                    "resources": {"limits": dict(limits or {})},
                }
            ],
        },
        "status": {
            "phase": phase,
            "containerStatuses": [
                {
                    "name": "main",
                    "containerID": f"containerd://{container_id}" if container_id else "",
                    "restartCount": 0,
                    "state": {"running": {}},
                }
            ],
        },
    }
    if owner:
        api_version, kind, owner_name = owner
        data["metadata"]["ownerReferences"] = [
            {
                "apiVersion": api_version,
                "kind": kind,
                "name": owner_name,
                "uid": "owner-uid",
                "controller": True,
            }
        ]
    return data


def agents_pod(url: str, namespace: str) -> dict[str, Any]:
    """An agent's pod, as a DaemonSet makes it, of the agent at an address."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    found = pod("agent-x", namespace, labels={"app.kubernetes.io/name": "rankscope-agent"})
    found["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": int(port)}]
    found["status"]["podIP"] = host
    return found


def _entry(name: str, value: Any) -> dict[str, Any]:
    return (
        {"name": name, "valueFrom": value}
        if isinstance(value, dict)
        else {
            "name": name,
            "value": value,
        }
    )


def field_ref(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}
