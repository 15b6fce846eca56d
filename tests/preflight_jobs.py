"""Manifests to check: a job that passes, and changes to it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from rankscope_analyzers.preflight import jobs
from rankscope_analyzers.preflight.checks import CHECKS, results
from rankscope_analyzers.preflight.documents import Document
from rankscope_analyzers.preflight.job import Settings
from rankscope_analyzers.preflight.outcome import Outcome

NETWORK = {
    "apiVersion": "k8s.cni.cncf.io/v1",
    "kind": "NetworkAttachmentDefinition",
    "metadata": {"name": "rail-0", "namespace": "ml"},
    "spec": {
        "config": json.dumps(
            {
                "type": "macvlan",
                "ipam": {"type": "whereabouts", "range": "10.1.0.0/16"},
            }
        )
    },
}

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "shared", "namespace": "ml"},
    "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "cephfs"},
}

POD = {
    "metadata": {
        "labels": {"sidecar.istio.io/inject": "false"},
        "annotations": {
            "k8s.v1.cni.cncf.io/networks": "rail-0",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        },
    },
    "spec": {
        "terminationGracePeriodSeconds": 600,
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "cloud.google.com/gce-topology-block"}
                ]
            }
        },
        "containers": [
            {
                "name": "pytorch",
                "command": ["torchrun", "--nproc-per-node=8", "train.py", "--save=/ckpt/run"],
                "env": [
                    {"name": "NCCL_DEBUG", "value": "INFO"},
                    {"name": "PYTHONPATH", "value": "/opt/rankscope/probe"},
                ],
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                "resources": {
                    "limits": {"cpu": 64, "memory": "512Gi", "nvidia.com/gpu": 8, "rdma/hca": 1}
                },
                "volumeMounts": [
                    {"name": "shm", "mountPath": "/dev/shm"},
                    {"name": "ckpt", "mountPath": "/ckpt"},
                ],
            }
        ],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
            {"name": "ckpt", "persistentVolumeClaim": {"claimName": "shared"}},
        ],
    },
}

JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "llm", "namespace": "ml"},
    "spec": {
        "runPolicy": {"backoffLimit": 5},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 4, "template": POD}},
    },
}

SHORT = {
    "template": ("spec", "pytorchReplicaSpecs", "Worker", "template"),
    "pod": ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec"),
    "main": ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec", "containers", 0),
    "limits": (
        *("spec", "pytorchReplicaSpecs", "Worker", "template", "spec", "containers", 0),
        *("resources", "limits"),
    ),
    "notes": ("spec", "pytorchReplicaSpecs", "Worker", "template", "metadata", "annotations"),
    "labels": ("spec", "pytorchReplicaSpecs", "Worker", "template", "metadata", "labels"),
    "worker": ("spec", "pytorchReplicaSpecs", "Worker"),
}
"""Parts of the job by a short name, with which a path of `changed` may begin."""

GONE = object()


def changed(changes: Mapping[str, Any], base: Mapping[str, Any] = JOB) -> dict[str, Any]:
    """Return a manifest with values put at, or removed from, paths separated by blanks."""
    made = copy.deepcopy(dict(base))
    for path, value in changes.items():
        first, *rest = path.split(" ")
        keys: list[Any] = [*SHORT.get(first, (first,)), *rest]
        target: Any = made
        for key in keys[:-1]:
            target = target[key] if isinstance(target, list) else target.setdefault(key, {})
        if value is GONE:
            target.pop(keys[-1], None)
        elif keys[-1] == "+env":
            target["env"] = [*target["env"], *value]
        else:
            target[keys[-1]] = value
    return made


def env(**values: object) -> list[dict[str, object]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def hidden(name: str) -> list[dict[str, object]]:
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    return [{"name": name, "valueFrom": source}]


def read(*bodies: Mapping[str, Any], settings: Settings | None = None) -> jobs.Manifests:
    documents = [Document(f"job.yaml:{n}", body) for n, body in enumerate(bodies, 1)]
    return jobs.of_documents(documents, "default", settings or Settings())


def outcomes(*bodies: Mapping[str, Any], settings: Settings | None = None) -> dict[str, Outcome]:
    """Return all outcomes of the one job in these manifests."""
    (job,) = read(*bodies, settings=settings).jobs
    return {one.check.id: one.outcome for one in results(job, CHECKS)}


IDS = [check.id for check in CHECKS]


def two_parts(master_env: Any = (), worker_env: Any = ()) -> dict[str, Any]:
    def part(given: Any) -> dict[str, Any]:
        return {
            "replicas": 1,
            "template": changed({"spec containers": [{"env": list(given)}]}, POD),
        }

    specs = {"Master": part(master_env), "Worker": part(worker_env)}
    return changed({"spec pytorchReplicaSpecs": specs})


PLAIN_SOCKETS = {"limits rdma/hca": GONE}

Case = tuple[str, str, str, list[dict[str, Any]]]
"""Check, verdict, part of what is seen, and manifests."""
