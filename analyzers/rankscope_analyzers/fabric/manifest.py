"""Manifests of a fabric check in separate pods, one on each node: bounded in time, and closed.

torch.distributed does not authenticate its peers. A NetworkPolicy admits only the check's own pods,
as far as the cluster's network enforces policies: secondary networks and hostNetwork do not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rankscope_analyzers.command import InputError

PORT = 29400
"""Port of the rendezvous; ranks listen on further ports that the kernel chooses."""

START_SECONDS = 600
"""Seconds beyond the check's own time: scheduling, and pulling an image of some GiB."""

MOST_NODES = 4096
RANK = "rankscope.io/fabric-check"
"""Label of the check's pods; its value is the check's name."""

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_RESOURCE = re.compile(r"([a-z0-9./-]{1,253})=([0-9]{1,4})")
_QUANTITY = re.compile(r"[0-9]{1,6}(?:[KMGT]i?)?")

Kind = Literal["job", "jobset"]
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods that are to check the fabric.

    Args:
        kind: of the object that creates them.
        name: of it, and of all that belongs to it.
        namespace: empty for kubectl's current one.
        image: with torch and Rankscope in it, like the training job's.
        nodes: number of pods, each on a separate node.
        gpus: of each pod; 0 measures with gloo.
        resources: of each pod in addition to its GPUs, as name=count.
        networks: secondary networks, as in their annotation.
        cpus: of each pod.
        memory: of each pod, as Kubernetes writes it.
        flags: of the check itself.
        seconds: that the check may take once all pods run.
    """

    kind: Kind
    name: str
    namespace: str
    image: str
    nodes: int
    gpus: int
    resources: Sequence[str]
    networks: Sequence[str]
    cpus: int
    memory: str
    flags: Sequence[str]
    seconds: float


def objects(pods: Pods) -> Sequence[Object]:
    """Return the objects for kubectl apply.

    Raises:
        InputError: a name or a number cannot be used.
    """
    _refuse(pods)
    labels = {RANK: pods.name}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(pods),
        # Ranks resolve each other's names before they are ready.
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels},
    }
    own = [{"podSelector": {"matchLabels": labels}}]
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(pods),
        "spec": {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": own}],
        },
    }
    if pods.kind == "job":
        return service, policy, _of_api("batch/v1", "Job", pods, _job(pods))
    network = {"enableDNSHostnames": True, "subdomain": pods.name, "publishNotReadyAddresses": True}
    replicated = [{"name": "node", "replicas": 1, "template": {"spec": _job(pods)}}]
    spec = {
        "network": network,
        "failurePolicy": {"maxRestarts": 2},
        "replicatedJobs": replicated,
    }
    return policy, _of_api("jobset.x-k8s.io/v1alpha2", "JobSet", pods, spec)


def _refuse(pods: Pods) -> None:
    if not _NAME.fullmatch(pods.name):
        raise InputError(f"a name is up to 40 of a-z, 0-9 and -, not {pods.name!r}")
    if not 2 <= pods.nodes <= MOST_NODES:
        raise InputError(f"a fabric check takes 2 to {MOST_NODES} nodes, not {pods.nodes}")
    for one in pods.resources:
        if not _RESOURCE.fullmatch(one):
            raise InputError(f"a resource is NAME=COUNT such as rdma/hca=1, not {one!r}")
    if not _QUANTITY.fullmatch(pods.memory):
        raise InputError(f"memory is a quantity such as 64Gi, not {pods.memory!r}")


def _metadata(pods: Pods) -> Object:
    place = {"namespace": pods.namespace} if pods.namespace else {}
    return {"name": pods.name, **place, "labels": {RANK: pods.name}}


def _of_api(version: str, kind: str, pods: Pods, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": _metadata(pods), "spec": spec}


def _job(pods: Pods) -> Object:
    # torchrun ends with 1 whatever its processes end with; a restart would only repeat a result.
    ended = {"containerName": "check", "operator": "NotIn", "values": [0]}
    return {
        "completionMode": "Indexed",
        "completions": pods.nodes,
        "parallelism": pods.nodes,
        "backoffLimit": 2,
        "activeDeadlineSeconds": round(START_SECONDS + pods.seconds),
        "ttlSecondsAfterFinished": 24 * 3600,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": ended}]},
        "template": {
            "metadata": {
                "labels": {RANK: pods.name, "sidecar.istio.io/inject": "false"},
                "annotations": _annotations(pods),
            },
            "spec": _pod(pods),
        },
    }


def _annotations(pods: Pods) -> Mapping[str, str]:
    kept = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    attached = {"k8s.v1.cni.cncf.io/networks": ",".join(pods.networks)} if pods.networks else {}
    return {**kept, **attached}


def _pod(pods: Pods) -> Object:
    selector = {"matchLabels": {RANK: pods.name}}

    def near(key: str) -> Object:
        term = {"topologyKey": key, "labelSelector": selector}
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}

    return {
        "restartPolicy": "Never",
        **({"subdomain": pods.name} if pods.kind == "job" else {}),
        "automountServiceAccountToken": False,
        "affinity": {
            "podAffinity": near("topology.kubernetes.io/zone"),
            "podAntiAffinity": near("kubernetes.io/hostname"),
        },
        "containers": [_container(pods)],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}],
    }


def _container(pods: Pods) -> Object:
    amounts: dict[str, object] = {"cpu": pods.cpus, "memory": pods.memory}
    amounts |= {"nvidia.com/gpu": pods.gpus} if pods.gpus else {}
    amounts |= {name: int(count) for name, _, count in (r.partition("=") for r in pods.resources)}
    host = f"{pods.name}-0" if pods.kind == "job" else f"{pods.name}-node-0-0"
    launch = [
        "torchrun",
        f"--nnodes={pods.nodes}",
        f"--nproc-per-node={max(1, pods.gpus)}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={host}.{pods.name}:{PORT}",
        f"--rdzv-id={pods.name}",
    ]
    # Locking memory, which RDMA does, requires root here: added capabilities reach only root.
    added = {"capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}} if pods.resources else {}
    node = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    return {
        "name": "check",
        "image": pods.image,
        "command": [*launch, "--no-python", "rankscope", "fabric-check", *pods.flags],
        "env": [
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "RANKSCOPE_NODE_NAME", "valueFrom": node},
        ],
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {"allowPrivilegeEscalation": False, **added},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
    }
