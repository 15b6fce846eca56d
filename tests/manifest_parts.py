"""What rules on manifests look at: workloads, their pods and containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Objects = list[dict[str, Any]]
Rule = Callable[[Objects], Iterator[str]]

WORKLOADS = ("DaemonSet", "Deployment")
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def named(found: dict[str, Any]) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"


def repeats(names: Sequence[str]) -> set[str]:
    """Return what stands among names more than once."""
    return {name for name in names if names.count(name) > 1}


def workloads(objects: Objects) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield name, object and pod specification of what makes pods."""
    for found in objects:
        if found["kind"] in WORKLOADS:
            yield named(found), found, found["spec"]["template"]["spec"]


def containers(objects: Objects) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield name, pod specification and container."""
    for name, _, pod in workloads(objects):
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            yield f"{name}/{container['name']}", pod, container


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def pod_labels(objects: Objects) -> list[dict[str, str]]:
    return [w["spec"]["template"]["metadata"]["labels"] for _, w, _ in workloads(objects)]
