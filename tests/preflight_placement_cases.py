"""Cases of preflight's checks of where ranks run, what runs beside them, and how they meet."""

from __future__ import annotations

from typing import Any

from preflight_jobs import GONE, JOB, Case, changed, env, two_parts


def affinity(key: str, kind: str = "podAffinity") -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key}]}}


def spread(key: str, unsatisfiable: str) -> list[dict[str, Any]]:
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": unsatisfiable}]


ZONE, RACK = "topology.kubernetes.io/zone", "network.topology.nvidia.com/leaf"
EVICT = "notes cluster-autoscaler.kubernetes.io/safe-to-evict"
PROXY = {"name": "istio-proxy", "restartPolicy": "Always"}


def four_pods(host: str, **spec: object) -> dict[str, Any]:
    """What a Job of four pods is made from, which meet at a host."""
    options = {"main command": ["torchrun", f"--rdzv-endpoint={host}:29500"]}
    parts = changed({**options, "pod affinity": GONE})["spec"]["pytorchReplicaSpecs"]
    template = parts["Worker"]["template"]
    return {"spec": {"parallelism": 4, "completions": 4, "template": template, **spec}}


def one_job(**spec: object) -> dict[str, Any]:
    metadata = {"name": "llm", "namespace": "ml"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    return changed(
        {"spec template spec subdomain": "llm"}, {**job, **four_pods("llm-0.llm", **spec)}
    )


def job_set(host: str, **annotations: str) -> dict[str, Any]:
    """Two Jobs of four pods."""
    part = {"name": "workers", "replicas": 2, "template": four_pods(host)}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "llm", "namespace": "ml", "annotations": annotations},
        "spec": {"replicatedJobs": [part]},
    }


EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
ONE_OF_A_SET = job_set("x", **{EXCLUSIVE: RACK})
ONE_OF_A_SET["spec"]["replicatedJobs"][0]["replicas"] = 1


def in_two_zones() -> dict[str, Any]:
    job = two_parts()
    for name, zone in (("Master", "a"), ("Worker", "b")):
        template = job["spec"]["pytorchReplicaSpecs"][name]["template"]
        template["spec"]["nodeSelector"] = {ZONE: zone}
    return job


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
    ("one-zone", "fail", "keeps 2 Jobs apart by", [job_set("x", **{EXCLUSIVE: ZONE})]),
    ("one-zone", "warn", "nothing keeps", [job_set("x", **{EXCLUSIVE: RACK})]),
    ("few-racks", "pass", "each of 2 Jobs", [job_set("x", **{EXCLUSIVE: RACK})]),
    ("one-zone", "pass", f"share {RACK}", [ONE_OF_A_SET]),
    ("few-racks", "pass", f"share {RACK}", [ONE_OF_A_SET]),
    ("one-zone", "fail", "Master is bound to a, Worker is bound to b", [in_two_zones()]),
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
    ("rendezvous-host", "pass", "llm-workers-1-3.llm", [job_set("llm-workers-1-3.llm")]),
    ("rendezvous-host", "fail", "no pod of this name", [job_set("llm-workers-0-7.llm")]),
    ("rendezvous-host", "fail", "no pod of this name", [job_set("llm-workers-2-0.llm")]),
    ("rendezvous-host", "pass", "llm-0.llm", [one_job(completionMode="Indexed")]),
    ("rendezvous-host", "fail", "no pod of this name", [one_job()]),
    (
        *("rendezvous-host", "fail", "without a subdomain"),
        [changed({"spec template spec subdomain": GONE}, one_job(completionMode="Indexed"))],
    ),
    ("job-project", "pass", "project llm", [JOB]),
    ("job-project", "pass", "project vision", [changed({"labels rankscope.io/project": "vision"})]),
    ("job-project", "warn", "namespace other has no", [changed({"metadata namespace": "other"})]),
    ("sidecar", "fail", "istio-proxy", [changed({"pod initContainers": [PROXY]})]),
]
