"""What rules on manifests look at: workloads, their pods and containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Objects = list[dict[str, Any]]
Rule = Callable[[Objects], Iterator[str]]

WORKLOADS = ("DaemonSet", "Deployment", "StatefulSet", "Job")
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def named(found: dict[str, Any]) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"


def repeats(names: Sequence[str]) -> set[str]:
    """Return what stands among names more than once."""
    return {name for name in names if names.count(name) > 1}


def workloads(objects: Objects) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield name, object and pod specification of what makes pods."""
    for one in objects:
        found = job_of(one) if one["kind"] == "CronJob" else one
        if found["kind"] in WORKLOADS:
            yield named(found), found, found["spec"]["template"]["spec"]


def job_of(cron_job: dict[str, Any]) -> dict[str, Any]:
    """Return what a CronJob makes, by its own name."""
    job = cron_job["spec"]["jobTemplate"]
    return {"kind": "Job", "metadata": cron_job["metadata"], "spec": job["spec"]}


def containers(objects: Objects) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield name, pod specification and container."""
    for name, _, pod in workloads(objects):
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            yield f"{name}/{container['name']}", pod, container


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def pod_labels(objects: Objects) -> list[dict[str, str]]:
    return [w["spec"]["template"]["metadata"]["labels"] for _, w, _ in workloads(objects)]
