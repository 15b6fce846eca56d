"""Cases of preflight's checks of what pods ask for: memory, CPUs and GPUs."""

from __future__ import annotations

from typing import Any

from preflight_jobs import GONE, JOB, Case, changed

EQUAL = {"name": "logs", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}

UNSAID = {"main command": ["torchrun", "x.py"]}


def torchrun_without_operator() -> dict[str, Any]:
    """The same in a Job of Kubernetes, in which nothing but its options tells torchrun."""
    template = changed(UNSAID)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    metadata = {"name": "llm", "namespace": "ml"}
    spec = {"template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


RESOURCE_CASES: list[Case] = [
    ("shared-memory", "pass", "16Gi", [JOB]),
    ("shared-memory", "pass", "hostIPC", [changed({"pod hostIPC": True})]),
    (
        *("shared-memory", "warn", "512Mi"),
        [
            changed(
                {
                    "pod volumes": [
                        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "512Mi"}}
                    ]
                }
            )
        ],
    ),
    ("shared-memory", "warn", "memory limit of 8Gi", [changed({"limits memory": "8Gi"})]),
    ("shared-memory", "fail", "64 MiB", [changed({"main volumeMounts": []})]),
    (
        "shared-memory",
        "fail",
        "disk",
        [changed({"pod volumes": [{"name": "shm", "emptyDir": {}}]})],
    ),
    ("locked-memory", "pass", "IPC_LOCK", [JOB]),
    ("locked-memory", "warn", "no IPC_LOCK", [changed({"main securityContext": GONE})]),
    ("locked-memory", "warn", "hostUsers: false", [changed({"pod hostUsers": False})]),
    ("locked-memory", "warn", "user 1000", [changed({"pod securityContext": {"runAsUser": 1000}})]),
    (
        *("locked-memory", "fail", "ulimit -l 64"),
        [changed({"main command": ["sh", "-c", "ulimit -l 64; torchrun x.py"]})],
    ),
    ("numa", "pass", "64 CPUs", [JOB]),
    ("numa", "warn", "request none", [changed({"limits cpu": GONE})]),
    ("numa", "warn", "1.5 CPUs", [changed({"limits cpu": "1500m"})]),
    ("numa", "fail", "above limit", [changed({"main resources requests": {"cpu": 65}})]),
    ("gpu-count", "pass", "8, and 8 GPUs", [JOB]),
    ("gpu-count", "warn", "idle", [changed({"spec nprocPerNode": 4, **UNSAID})]),
    ("gpu-count", "pass", "nprocPerNode by default: auto, 8 GPUs", [changed(UNSAID)]),
    (
        *("gpu-count", "warn", "elasticPolicy.nProcPerNode: 4"),
        [changed({"spec elasticPolicy nProcPerNode": 4, **UNSAID})],
    ),
    ("gpu-count", "warn", "processes by default: 1", [torchrun_without_operator()]),
    ("gpu-count", "fail", "share", [changed({"limits nvidia.com/gpu": 4})]),
    ("gpu-count", "undecided", "number of processes", [changed({"main command": ["./train.sh"]})]),
    ("gpu-count", "warn", "8, and no GPUs", [changed({"limits nvidia.com/gpu": GONE})]),
    (
        *("numa", "warn", "cpu of container logs: request none, limit none"),
        [changed({"pod initContainers": [{"name": "logs", "restartPolicy": "Always"}]})],
    ),
    (
        *("numa", "warn", "memory of container logs: request 1Mi, limit 1Gi"),
        [
            changed(
                {
                    "pod initContainers": [
                        EQUAL
                        | {
                            "resources": {
                                "limits": {"cpu": 1, "memory": "1Gi"},
                                "requests": {"memory": "1Mi"},
                            }
                        }
                    ]
                }
            )
        ],
    ),
    ("numa", "pass", "64 CPUs", [changed({"pod initContainers": [EQUAL]})]),
]
