"""Cases of preflight's checks of where ranks run, what runs beside them, and how they meet."""

from __future__ import annotations

from typing import Any

from preflight_jobs import GONE, JOB, Case, changed, env


def affinity(key: str, kind: str = "podAffinity") -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key}]}}


def spread(key: str, unsatisfiable: str) -> list[dict[str, Any]]:
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": unsatisfiable}]


ZONE, RACK = "topology.kubernetes.io/zone", "network.topology.nvidia.com/leaf"
EVICT = "notes cluster-autoscaler.kubernetes.io/safe-to-evict"
PROXY = {"name": "istio-proxy", "restartPolicy": "Always"}

PLACEMENT_CASES: list[Case] = [
    ("sidecar", "pass", "no sidecar", [JOB]),
    ("sidecar", "warn", "nothing excludes", [changed({"labels sidecar.istio.io/inject": GONE})]),
    ("sidecar", "fail", "istio", [changed({"labels sidecar.istio.io/inject": "true"})]),
    (
        *("sidecar", "undecided", "how many"),
        [changed({"labels sidecar.istio.io/inject": GONE, "worker replicas": "n"})],
    ),
    ("one-zone", "pass", ZONE, [changed({"pod affinity": affinity(ZONE)})]),
    ("one-zone", "pass", "block", [JOB]),
    ("one-zone", "warn", "nothing keeps", [changed({"pod affinity": GONE})]),
    (
        *("one-zone", "warn", "spread"),
        [changed({"pod topologySpreadConstraints": spread(ZONE, "ScheduleAnyway")})],
    ),
    (
        *("one-zone", "fail", "spread"),
        [changed({"pod topologySpreadConstraints": spread(ZONE, "DoNotSchedule")})],
    ),
    ("one-zone", "fail", "apart", [changed({"pod affinity": affinity(ZONE, "podAntiAffinity")})]),
    ("one-zone", "undecided", "how many", [changed({"worker replicas": "n"})]),
    (
        *("few-racks", "pass", "if possible"),
        [changed({"pod affinity": GONE, "notes kueue.x-k8s.io/podset-preferred-topology": RACK})],
    ),
    ("few-racks", "warn", "nothing keeps", [changed({"pod affinity": affinity(ZONE)})]),
    (
        *("few-racks", "fail", "spread"),
        [changed({"pod topologySpreadConstraints": spread(RACK, "DoNotSchedule")})],
    ),
    ("few-racks", "undecided", "how many", [changed({"worker replicas": "n"})]),
    ("eviction", "pass", "false", [JOB]),
    (
        "eviction",
        "pass",
        "karpenter",
        [changed({EVICT: GONE, "notes karpenter.sh/do-not-disrupt": "true"})],
    ),
    ("eviction", "warn", "no such annotation", [changed({EVICT: GONE})]),
    ("eviction", "fail", "true", [changed({EVICT: "true"})]),
    (
        *("rendezvous-host", "pass", "llm-worker-3"),
        [changed({"main command": ["torchrun", "--rdzv-endpoint=llm-worker-3:29500"]})],
    ),
    (
        *("rendezvous-host", "warn", "changes with the pod"),
        [changed({"main command": ["torchrun", "--master-addr", "10.0.0.1"]})],
    ),
    (
        *("rendezvous-host", "fail", "no pod of this name"),
        [changed({"main command": ["torchrun", "--rdzv-endpoint=llm-master-0:29500"]})],
    ),
    ("rendezvous-host", "fail", "itself", [changed({"main +env": env(MASTER_ADDR="localhost")})]),
    (
        *("rendezvous-host", "undecided", "etcd"),
        [changed({"main command": ["torchrun", "--rdzv_endpoint=etcd:2379"]})],
    ),
    ("job-project", "pass", "project llm", [JOB]),
    ("job-project", "pass", "project vision", [changed({"labels rankscope.io/project": "vision"})]),
    ("job-project", "warn", "namespace other has no", [changed({"metadata namespace": "other"})]),
    ("sidecar", "fail", "istio-proxy", [changed({"pod initContainers": [PROXY]})]),
]
