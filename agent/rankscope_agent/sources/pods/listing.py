"""The answer of `/api/v1/pods`: pods, their devices, and the ranks known from processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.placement import PlacedRank, place_ranks
from rankscope_agent.sources.pods.placement_view import HeldDevice, PlacementView
from rankscope_agent.sources.pods.processes import environment_hash
from rankscope_agent.sources.pods.records import Pod


def listing(directory: PodDirectory) -> Mapping[str, Any]:
    """Return what is known about the node's pods as values for JSON; null stands for unknown."""
    view = directory.view
    return {
        "heard_unix_seconds": directory.contact_unix_seconds,
        "problems": dict(view.problems),
        "pods": [_pod(pod, directory, view) for pod in directory.pods()],
        "ranks": [_rank(rank) for rank in place_ranks(view, directory)],
    }


def _pod(pod: Pod, directory: PodDirectory, view: PlacementView) -> Mapping[str, Any]:
    member = directory.member(pod)
    return {
        "uid": pod.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "phase": pod.phase,
        "reason": pod.reason,
        "deleting": pod.deleting,
        "job_id": directory.job_of(pod.uid),
        "member": None if member is None else dataclasses.asdict(member),
        "restarts": sum(container.restarts for container in pod.containers),
        "devices": [_device(held) for held in view.devices if held.pod_uid == pod.uid],
        "images": {container.name: container.image for container in pod.containers},
        "limits": {key: n for c in pod.containers for key, n in c.limits.items()},
        "environment": {key: v for c in pod.containers for key, v in c.environment.items()},
    }


def _device(held: HeldDevice) -> Mapping[str, Any]:
    return {
        "container": held.allocation.container,
        "resource": held.allocation.resource,
        "device": held.allocation.device,
        "kind": held.allocation.kind,
        "uuid": held.uuid,
        "pci": held.device.pci,
        "rdma_device": held.rdma_device,
    }


def _rank(rank: PlacedRank) -> Mapping[str, Any]:
    identity = rank.process.identity
    return {
        "job_id": rank.job_id,
        "rank": identity.rank,
        "local_rank": identity.local_rank,
        "world_size": identity.world_size,
        "attempt": identity.attempt,
        "launcher": identity.launcher,
        "pod_uid": rank.pod_uid,
        "pod_namespace": rank.namespace,
        "pod_name": rank.pod,
        "container_name": rank.container,
        "uuid": rank.uuid,
        "command": list(rank.process.command),
        "environment": dict(identity.environment),
        "environment_hash": environment_hash(identity.environment),
    }
