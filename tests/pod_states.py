"""Pods of a job in the states that the kubelet writes, and what happens to them over time.

Shapes are those of k8s.io/api core/v1 (ContainerStatus, PodCondition) as the kubelet of Kubernetes
1.32 fills them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pod_json import pod

PYTORCH_JOB = ("kubeflow.org/v1", "PyTorchJob", "llm")
BEGIN = 1_795_168_800.0
"""Unix time at which these pods' stories begin: 2026-11-20 10:00:00 UTC."""


def at(seconds: float) -> str:
    """Return a moment of the story as Kubernetes writes it."""
    return datetime.fromtimestamp(BEGIN + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def worker(
    index: int = 0, *, number: int = 1, phase: str = "Running", **more: Any
) -> dict[str, Any]:
    """Return a worker of the PyTorchJob ml/llm whose container runs."""
    labels = {
        "training.kubeflow.org/job-name": "llm",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": str(index),
        **more.pop("labels", {}),
    }
    return pod(
        f"llm-worker-{index}",
        number=number,
        owner=PYTORCH_JOB,
        labels=labels,
        limits={"nvidia.com/gpu": "8"},
        phase=phase,
        **more,
    )


def ended(reason: str, code: int, seconds: float) -> dict[str, Any]:
    """Return the state of a container that ended."""
    return {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at(seconds)}}


def waits(reason: str) -> dict[str, Any]:
    """Return the state of a container that waits."""
    return {"waiting": {"reason": reason}}


def with_state(
    data: dict[str, Any],
    state: Mapping[str, Any],
    *,
    last: Mapping[str, Any] | None = None,
    restarts: int = 0,
    init: bool = False,
) -> dict[str, Any]:
    """Give a pod's container, or its only init container, a state."""
    status = {
        "name": "prepare" if init else "main",
        "restartCount": restarts,
        "state": dict(state),
        "lastState": dict(last or {}),
    }
    if not init:
        data["status"]["containerStatuses"] = [status]
        return data
    data["spec"]["initContainers"] = [{"name": "prepare"}]
    data["status"]["initContainerStatuses"] = [status]
    main = {"name": "main", "restartCount": 0, "state": waits("PodInitializing")}
    data["status"]["containerStatuses"] = [main]
    data["status"]["phase"] = "Pending"
    return data


def disrupted(data: dict[str, Any], who: str, seconds: float) -> dict[str, Any]:
    """Say of a pod who takes it away, as the scheduler does before it deletes it."""
    data["status"].setdefault("conditions", []).append(
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": who,
            "lastTransitionTime": at(seconds),
        }
    )
    return data


def deleted(data: dict[str, Any], seconds: float, grace: int = 30) -> dict[str, Any]:
    """Ask for a pod's deletion at a moment; its timestamp lies ahead by the grace period."""
    data["metadata"]["deletionTimestamp"] = at(seconds + grace)
    data["metadata"]["deletionGracePeriodSeconds"] = grace
    return data


def evicted(data: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return a pod that the kubelet evicted, with what it writes of its container."""
    with_state(data, ended("ContainerStatusUnknown", 137, seconds))
    data["status"] |= {"phase": "Failed", "reason": "Evicted", "startTime": at(0)}
    return disrupted(data, "TerminationByKubelet", seconds)
