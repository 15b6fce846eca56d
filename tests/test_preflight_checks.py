"""Each check of a manifest passes, warns, fails and cannot decide where it should."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from preflight_jobs import (
    CLAIM,
    GONE,
    IDS,
    JOB,
    NETWORK,
    POD,
    changed,
    env,
    hidden,
    outcomes,
    read,
)
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.preflight.budget_check import leaving_bytes
from rankscope_analyzers.preflight.job import NodeInterface, Settings
from rankscope_analyzers.preflight.master_check import attachment_master
from rankscope_analyzers.preflight.network_checks import matching
from rankscope_analyzers.preflight.outcome import outcome_of

CLUSTER = Configuration(fabric=("10.1.0.0/16", "fd00::/64"), projects={"ml": "llm"})
MEASURED = Settings(checkpoint_seconds=120, configuration=CLUSTER)
PLAIN_SOCKETS = {"limits rdma/hca": GONE}


def network(**changes: Any) -> dict[str, Any]:
    config = {"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.1.0.0/16"}}
    return changed({"spec config": json.dumps(config | changes)}, NETWORK)


def rail(name: str, range_: str) -> dict[str, Any]:
    made = network(ipam={"type": "whereabouts", "range": range_})
    return changed({"metadata name": name}, made)


def mpi(launcher: str, launcher_env: Any = (), worker_env: Any = ()) -> dict[str, Any]:
    def part(count: int, **container: Any) -> dict[str, Any]:
        return {"replicas": count, "template": {"spec": {"containers": [container]}}}

    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "llm", "namespace": "ml"},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": part(1, command=launcher.split(), env=list(launcher_env)),
                "Worker": part(2, env=list(worker_env)),
            }
        },
    }


def two_parts(master_env: Any = (), worker_env: Any = ()) -> dict[str, Any]:
    def part(given: Any) -> dict[str, Any]:
        return {
            "replicas": 1,
            "template": changed({"spec containers": [{"env": list(given)}]}, POD),
        }

    specs = {"Master": part(master_env), "Worker": part(worker_env)}
    return changed({"spec pytorchReplicaSpecs": specs})


def affinity(key: str, kind: str = "podAffinity") -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key}]}}


def spread(key: str, unsatisfiable: str) -> list[dict[str, Any]]:
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": unsatisfiable}]


def attached(*ips: str, mtu: int = 9000) -> str:
    status = [
        {"name": "cni", "interface": "eth0", "ips": ["10.244.0.3"], "default": True},
        {"name": "ml/rail-0", "interface": "net1", "ips": list(ips), "mtu": mtu},
    ]
    return json.dumps(status)


def pod(name: str, *ips: str) -> dict[str, Any]:
    made = {"apiVersion": "v1", "kind": "Pod", **POD}
    return changed(
        {
            "metadata name": name,
            "metadata namespace": "ml",
            "metadata labels training.kubeflow.org/job-name": "llm",
            "metadata annotations k8s.v1.cni.cncf.io/network-status": attached(*ips),
        },
        made,
    )


ZONE, RACK = "topology.kubernetes.io/zone", "network.topology.nvidia.com/leaf"
STATUS = "notes k8s.v1.cni.cncf.io/network-status"
POD_STATUS = "metadata annotations k8s.v1.cni.cncf.io/network-status"
NETWORKS = "notes k8s.v1.cni.cncf.io/networks"
EVICT = "notes cluster-autoscaler.kubernetes.io/safe-to-evict"

# check, verdict, part of what is seen, manifests beside the claim, settings
Case = tuple[str, str, str, list[dict[str, Any]]]

CASES: list[Case] = [
    ("secondary-interface", "pass", "rail-0 as net1", [JOB]),
    ("secondary-interface", "warn", "hostNetwork", [changed({"pod hostNetwork": True})]),
    ("secondary-interface", "pass", "net1", [pod("a", "10.1.0.3"), pod("b", "10.1.0.4")]),
    (
        *("secondary-interface", "warn", "1500 in b, 9000 in a"),
        [pod("a", "10.1.0.3"), changed({POD_STATUS: attached("10.1.0.4", mtu=1500)}, pod("b"))],
    ),
    ("secondary-interface", "fail", "rdma/hca: 1", [changed({NETWORKS: GONE})]),
    ("secondary-interface", "fail", "network-status does not list it", [changed({STATUS: "[]"})]),
    ("secondary-interface", "fail", "not a JSON list", [changed({NETWORKS: "[{]"})]),
    ("secondary-interface", "undecided", "how many", [changed({"worker replicas": "n"})]),
    ("attachment-definition", "pass", "ml/rail-0", [JOB, NETWORK]),
    ("attachment-definition", "fail", "not a JSON", [JOB, changed({"spec config": "{"}, NETWORK)]),
    (
        *("attachment-definition", "fail", "namespace other"),
        [JOB, changed({"metadata namespace": "other"}, NETWORK)],
    ),
    ("attachment-definition", "undecided", "not among the manifests", [JOB]),
    ("address-ranges", "pass", "whereabouts", [JOB, NETWORK]),
    (
        *("address-ranges", "warn", "host-local"),
        [
            changed({"worker replicas": 1}),
            network(ipam={"type": "host-local", "subnet": "10.1.0.0/16"}),
        ],
    ),
    (
        *("address-ranges", "fail", "two nodes"),
        [JOB, network(ipam={"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16"}]]})],
    ),
    (
        *("address-ranges", "fail", "both assign"),
        [
            changed({NETWORKS: "rail-0,rail-1"}),
            rail("rail-0", "10.1.0.0/16"),
            rail("rail-1", "10.1.128.0/17"),
        ],
    ),
    ("address-ranges", "undecided", "not among the manifests", [JOB]),
    ("pod-addresses", "pass", "2 addresses", [pod("a", "10.1.0.3"), pod("b", "10.1.0.4"), NETWORK]),
    ("pod-addresses", "fail", "both have 10.1.0.3", [pod("a", "10.1.0.3"), pod("b", "10.1.0.3")]),
    ("pod-addresses", "fail", "10.9.0.3 on ml/rail-0", [pod("a", "10.9.0.3"), NETWORK]),
    (
        *("pod-addresses", "fail", "all 4 pods"),
        [changed({NETWORKS: '[{"name": "rail-0", "ips": ["10.1.0.3"]}]'})],
    ),
    ("pod-addresses", "undecided", "not a JSON list", [changed({NETWORKS: "[{]"})]),
    ("fabric-addresses", "pass", "rail-0: 10.1.0.0/16", [JOB, NETWORK]),
    (
        *("fabric-addresses", "pass", "rail-1: 10.1.128.0/17"),
        [
            changed({NETWORKS: "storage,rail-1"}),
            rail("storage", "10.9.0.0/16"),
            rail("rail-1", "10.1.128.0/17"),
        ],
    ),
    ("fabric-addresses", "pass", "ml/rail-0: fd00::3", [pod("a", "fd00::3")]),
    ("fabric-addresses", "fail", "ml/rail-0: fd00:0:0:1::3", [pod("a", "fd00:0:0:1::3")]),
    ("fabric-addresses", "fail", "rail-0: 10.0.0.0/15", [JOB, rail("rail-0", "10.0.0.0/15")]),
    ("fabric-addresses", "fail", "rail-0: 10.2.0.0/16", [JOB, rail("rail-0", "10.2.0.0/16")]),
    (
        *("fabric-addresses", "fail", "b has only ml/rail-0: 10.9.0.4"),
        [pod("a", "10.1.0.3"), pod("b", "10.9.0.4")],
    ),
    ("fabric-addresses", "undecided", "not among the manifests", [JOB]),
    ("fabric-addresses", "undecided", "which is not an address", [pod("a", "10.1.0")]),
    ("single-network", "pass", "rdma/hca", [JOB]),
    ("single-network", "pass", "net1", [changed(PLAIN_SOCKETS)]),
    ("single-network", "warn", "default interface", [changed({**PLAIN_SOCKETS, NETWORKS: GONE})]),
    (
        *("single-network", "undecided", "node's network"),
        [changed({**PLAIN_SOCKETS, "pod hostNetwork": True})],
    ),
    ("socket-interface", "pass", "not set", [JOB]),
    (
        *("socket-interface", "pass", "matches eth0"),
        [changed({"main +env": env(NCCL_SOCKET_IFNAME="eth0")})],
    ),
    ("socket-interface", "warn", "may take eth0", [changed(PLAIN_SOCKETS)]),
    (
        *("socket-interface", "warn", "eth0, net1"),
        [changed({**PLAIN_SOCKETS, "main +env": env(NCCL_SOCKET_IFNAME="^lo")})],
    ),
    (
        *("socket-interface", "fail", "matches none of eth0, net1"),
        [changed({"main +env": env(NCCL_SOCKET_IFNAME="=net10,ib")})],
    ),
    (
        *("socket-interface", "fail", "sockets carry the gradients"),
        [changed({**PLAIN_SOCKETS, "main +env": env(NCCL_SOCKET_IFNAME="eth")})],
    ),
    (
        *("socket-interface", "undecided", "secret"),
        [changed({"main +env": hidden("NCCL_SOCKET_IFNAME")})],
    ),
    ("rdma-transport", "pass", "not switched off", [JOB]),
    (
        *("rdma-transport", "warn", "no RDMA devices"),
        [changed({**PLAIN_SOCKETS, "main +env": env(NCCL_IB_DISABLE=1)})],
    ),
    ("rdma-transport", "fail", "TCP", [changed({"main +env": env(NCCL_IB_DISABLE=1)})]),
    ("rdma-transport", "fail", "TCP", [changed({"main +env": env(NCCL_NET="Socket")})]),
    ("rdma-transport", "undecided", "secret", [changed({"main +env": hidden("NCCL_IB_DISABLE")})]),
    ("rdma-devices", "pass", "all ranks", [JOB]),
    (
        *("rdma-devices", "warn", "privileges"),
        [changed({**PLAIN_SOCKETS, "main securityContext": {"privileged": True}})],
    ),
    (
        *("rdma-devices", "fail", "no /dev/infiniband"),
        [changed({**PLAIN_SOCKETS, "main +env": env(NCCL_IB_HCA="mlx5")})],
    ),
    ("rdma-devices", "undecided", "how many", [changed({"worker replicas": "n"})]),
    ("gpudirect", "pass", "nothing turns it off", [JOB]),
    ("gpudirect", "warn", "DMABUF", [changed({"main +env": env(NCCL_DMABUF_ENABLE=0)})]),
    ("gpudirect", "fail", "GDR_LEVEL=LOC", [changed({"main +env": env(NCCL_NET_GDR_LEVEL="loc")})]),
    ("gpudirect", "undecided", "secret", [changed({"main +env": hidden("NCCL_NET_GDR_LEVEL")})]),
    (
        *("host-network-dns", "pass", "WithHostNet"),
        [changed({"pod hostNetwork": True, "pod dnsPolicy": "ClusterFirstWithHostNet"})],
    ),
    (
        *("host-network-dns", "warn", "ClusterFirst"),
        [changed({"pod hostNetwork": True, "worker replicas": 1})],
    ),
    ("host-network-dns", "fail", "by name", [changed({"pod hostNetwork": True})]),
    (
        *("host-network-dns", "undecided", "how many"),
        [changed({"pod hostNetwork": True, "worker replicas": "n"})],
    ),
    ("sidecar", "pass", "no sidecar", [JOB]),
    ("sidecar", "warn", "nothing excludes", [changed({"labels sidecar.istio.io/inject": GONE})]),
    ("sidecar", "fail", "istio", [changed({"labels sidecar.istio.io/inject": "true"})]),
    (
        *("sidecar", "undecided", "how many"),
        [changed({"labels sidecar.istio.io/inject": GONE, "worker replicas": "n"})],
    ),
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
    ("nccl-variables", "pass", "known", [JOB]),
    ("nccl-variables", "warn", "no longer", [changed({"main +env": env(NCCL_LL_THRESHOLD=0)})]),
    ("nccl-variables", "warn", "no version", [changed({"main +env": env(NCCL_TURBO_MODE=1)})]),
    ("nccl-variables", "fail", "ignores", [changed({"main +env": env(NCCL_SOKET_IFNAME="x")})]),
    (
        *("nccl-variables", "undecided", "ConfigMap 'nccl'"),
        [changed({"main envFrom": [{"configMapRef": {"name": "nccl"}}]})],
    ),
    ("nccl-debug", "pass", "INFO", [JOB]),
    ("nccl-debug", "warn", "not set", [changed({"main env": []})]),
    ("nccl-debug", "warn", "WARN", [changed({"main env": env(NCCL_DEBUG="warn")})]),
    ("nccl-debug", "warn", "SUBSYS", [changed({"main +env": env(NCCL_DEBUG_SUBSYS="GRAPH")})]),
    ("nccl-debug", "warn", "pod's log", [changed({"main +env": env(NCCL_DEBUG_FILE="/tmp/x")})]),
    ("nccl-debug", "fail", "not a level", [changed({"main env": env(NCCL_DEBUG="yes")})]),
    ("nccl-debug", "undecided", "secret", [changed({"main env": hidden("NCCL_DEBUG")})]),
    (
        "equal-environment",
        "pass",
        "equal",
        [two_parts(env(NCCL_ALGO="Ring"), env(NCCL_ALGO="Ring"))],
    ),
    ("equal-environment", "warn", "'INFO'", [two_parts(env(NCCL_DEBUG="INFO"))]),
    (
        *("equal-environment", "fail", "NCCL_IB_HCA is 'mlx5' for Master and 'not set'"),
        [two_parts([*env(NCCL_DEBUG="INFO"), *env(NCCL_IB_HCA="mlx5")])],
    ),
    ("mpi-environment", "pass", "handed on: NCCL_ALGO", [mpi("mpirun -x NCCL_ALGO=Ring train")]),
    (
        *("mpi-environment", "warn", "Worker"),
        [mpi("mpirun -np 2 train", worker_env=env(NCCL_IB_HCA="mlx5"))],
    ),
    (
        *("mpi-environment", "fail", "NCCL_IB_HCA is set on the launcher"),
        [mpi("mpirun -np 2 train", env(NCCL_IB_HCA="mlx5"))],
    ),
    (
        *("mpi-environment", "undecided", "secret 's'"),
        [
            changed(
                {
                    "spec mpiReplicaSpecs Launcher template spec containers": [
                        {"envFrom": [{"secretRef": {"name": "s"}}]}
                    ]
                },
                mpi("mpirun train"),
            )
        ],
    ),
    ("algorithm-tuning", "pass", "fixed", [changed({"main +env": env(NCCL_ALGO="Ring")})]),
    (
        *("algorithm-tuning", "warn", "NCCL_ALGO"),
        [changed({"main +env": env(NCCL_ALGO="Ring"), "pod affinity": GONE})],
    ),
    (
        *("algorithm-tuning", "undecided", "secret"),
        [changed({"main envFrom": [{"secretRef": {"name": "s"}}]})],
    ),
    ("progress-visible", "pass", "probe", [JOB]),
    ("progress-visible", "warn", "phase", [changed({"main env": []})]),
    (
        *("progress-visible", "fail", "hangs"),
        [changed({"main +env": env(TORCH_NCCL_ASYNC_ERROR_HANDLING=0)})],
    ),
    (
        *("progress-visible", "undecided", "secret"),
        [changed({"main +env": hidden("TORCH_NCCL_ENABLE_MONITORING")})],
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
    ("checkpoint-volume", "pass", "ReadWriteMany", [JOB, CLAIM]),
    (
        *("checkpoint-volume", "pass", "s3://b/run"),
        [changed({"main command": ["torchrun", "--checkpoint-dir", "s3://b/run"]})],
    ),
    (
        *("checkpoint-volume", "warn", "ReadWriteOnce"),
        [
            changed({"worker replicas": 1}),
            changed({"spec accessModes": ["ReadWriteOnce"]}, CLAIM),
        ],
    ),
    (
        *("checkpoint-volume", "fail", "4 pods mount it"),
        [JOB, changed({"spec accessModes": ["ReadWriteOnce"]}, CLAIM)],
    ),
    (
        *("checkpoint-volume", "fail", "disks of the node"),
        [
            JOB,
            CLAIM,
            {
                "kind": "StorageClass",
                "apiVersion": "storage.k8s.io/v1",
                "metadata": {"name": "cephfs"},
                "provisioner": "rancher.io/local-path",
            },
        ],
    ),
    (
        *("checkpoint-volume", "fail", "emptyDir"),
        [changed({"pod volumes": [{"name": "ckpt", "emptyDir": {}}]})],
    ),
    (
        *("checkpoint-volume", "fail", "nothing is mounted at /out"),
        [changed({"main +env": env(OUTPUT_DIR="/out"), "main command": ["train"]})],
    ),
    ("checkpoint-volume", "undecided", "Claim", [JOB]),
    ("restart-budget", "pass", "5", [JOB]),
    ("restart-budget", "warn", "unlimited", [changed({"spec runPolicy": GONE})]),
    ("restart-budget", "warn", "backoffLimit: 1", [changed({"spec runPolicy backoffLimit": 1})]),
    ("restart-budget", "fail", "backoffLimit: 0", [changed({"spec runPolicy backoffLimit": 0})]),
    ("restart-budget", "undecided", "is not a", [changed({"spec runPolicy backoffLimit": "x"})]),
    (
        *("elastic-bounds", "pass", "from 2 to 8"),
        [changed({"spec elasticPolicy": {"minReplicas": 2, "maxReplicas": 8}})],
    ),
    (
        *("elastic-bounds", "warn", "every pod"),
        [changed({"main command": ["torchrun", "--nnodes=4:4", "x.py"]})],
    ),
    (
        *("elastic-bounds", "fail", "never starts"),
        [changed({"main command": ["torchrun", "--nnodes", "8:16", "x.py"]})],
    ),
    (
        *("elastic-bounds", "fail", "from 8 to 2"),
        [changed({"spec elasticPolicy": {"minReplicas": 8, "maxReplicas": 2}})],
    ),
    (
        *("elastic-bounds", "undecided", "how many"),
        [
            changed(
                {"spec elasticPolicy": {"minReplicas": 2, "maxReplicas": 8}, "worker replicas": "n"}
            )
        ],
    ),
    ("termination-grace", "pass", "600", [JOB]),
    ("termination-grace", "warn", "150", [changed({"pod terminationGracePeriodSeconds": 150})]),
    ("termination-grace", "fail", "30", [changed({"pod terminationGracePeriodSeconds": GONE})]),
    (
        *("termination-grace", "undecided", "not a number"),
        [changed({"pod terminationGracePeriodSeconds": "x"})],
    ),
    ("gpu-count", "pass", "8, and 8 GPUs", [JOB]),
    ("gpu-count", "warn", "idle", [changed({"main command": ["torchrun", "x.py"]})]),
    ("gpu-count", "fail", "share", [changed({"limits nvidia.com/gpu": 4})]),
    ("gpu-count", "undecided", "number of processes", [changed({"main command": ["./train.sh"]})]),
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
]


def budget(**values: str) -> dict[str, Any]:
    """The job, whose annotations say 21 GB and 0.42 s at 400 Gbit/s for four nodes."""
    known = {"parameters": "7B", "layout": "all-reduce", "node-gbits": "400", **values}
    return changed(
        {"metadata annotations": {f"rankscope.io/{name}": text for name, text in known.items()}}
    )


def budget_of_two(workers: object, **values: str) -> dict[str, Any]:
    """The same for one master and some workers."""
    known = budget(**values)
    job = two_parts()
    job["metadata"]["annotations"] = known["metadata"]["annotations"]
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = workers
    return job


CASES += [
    ("job-project", "pass", "project llm", [JOB]),
    ("job-project", "pass", "project vision", [changed({"labels rankscope.io/project": "vision"})]),
    ("job-project", "warn", "namespace other has no", [changed({"metadata namespace": "other"})]),
]

CASES += [
    (
        "fabric-budget",
        "pass",
        "21 GB leave each in a step, 0.42 s",
        [budget(**{"step-seconds": "1"})],
    ),
    ("fabric-budget", "warn", "50% of the step", [budget(**{"step-seconds": "0.8"})]),
    ("fabric-budget", "pass", "60% of", [budget(overlap="0.6", **{"step-seconds": "0.8"})]),
    ("fabric-budget", "fail", "even if all", [budget(**{"step-seconds": "0.4"})]),
    (
        *("fabric-budget", "fail", "31.5 GB"),
        [budget(layout="sharded", **{"step-seconds": "0.6"})],
    ),
    (
        *("fabric-budget", "undecided", "'tensor' exchanges"),
        [budget(layout="tensor", **{"step-seconds": "1"})],
    ),
    (
        *("fabric-budget", "undecided", "rate of a node"),
        [budget(**{"step-seconds": "1", "node-gbits": ""})],
    ),
    (
        *("fabric-budget", "undecided", "how many pods"),
        [budget_of_two("n", **{"step-seconds": "0.8"})],
    ),
    ("fabric-budget", "undecided", "not '50'", [budget(overlap="50", **{"step-seconds": "0.4"})]),
    ("fabric-budget", "warn", "0% of", [budget(overlap="0", **{"step-seconds": "0.8"})]),
    ("fabric-budget", "undecided", "not 'soon'", [budget(**{"step-seconds": "soon"})]),
]

CLAIMS = {
    "limits nvidia.com/gpu": GONE,
    "limits rdma/hca": GONE,
    "main resources claims": [{"name": "devices"}],
}
CASES += [
    (check, "undecided", "resource claims", [changed(CLAIMS)])
    for check in ("gpu-count", "nccl-debug", "numa", "rdma-devices", "locked-memory", "gpudirect")
]
CASES += [
    ("gpu-count", "warn", "8, and no GPUs", [changed({"limits nvidia.com/gpu": GONE})]),
    (
        *("rdma-devices", "pass", "nvidia.com/hostdev: 8"),
        [changed({"limits rdma/hca": GONE, "limits nvidia.com/hostdev": 8})],
    ),
]

PROXY = {"name": "istio-proxy", "restartPolicy": "Always"}
EQUAL = {"name": "logs", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
CASES += [
    ("sidecar", "fail", "istio-proxy", [changed({"pod initContainers": [PROXY]})]),
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

REFERRING = [{"name": "RAIL", "value": "eth"}, {"name": "NCCL_SOCKET_IFNAME", "value": "$(RAIL)0"}]
ELSEWHERE = [{"name": "NCCL_SOCKET_IFNAME", "value": "$(RAIL)0"}]


def script(text: str) -> dict[str, Any]:
    return changed({"main command": ["bash", "-c", text], "main env": []})


CASES += [
    ("socket-interface", "pass", "=eth0 matches", [changed({"main +env": REFERRING})]),
    ("socket-interface", "undecided", "$(RAIL)0", [changed({"main +env": ELSEWHERE})]),
    (
        "socket-interface",
        "fail",
        "=$(RAIL)0 matches none",
        [changed({"main +env": [{"name": "NCCL_SOCKET_IFNAME", "value": "$$(RAIL)0"}]})],
    ),
    ("nccl-debug", "pass", "INFO", [script("NCCL_DEBUG=INFO torchrun a.py")]),
    ("nccl-debug", "pass", "INFO", [script("set -e; export A=1 NCCL_DEBUG='INFO'; ./a")]),
    ("nccl-debug", "pass", "INFO", [script("cd /a &&\\\n  env NCCL_DEBUG=INFO ./a")]),
    ("nccl-debug", "warn", "not set", [script("mpirun -x NCCL_DEBUG=INFO ./a NCCL_DEBUG=INFO")]),
    (
        "nccl-debug",
        "warn",
        "not set",
        [changed({"main args": ["NCCL_DEBUG=INFO"], "main env": []})],
    ),
]

TRAIN_JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "llm", "namespace": "ml"},
    "spec": {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 4}},
}
# What a manifest with pods always says, and a TrainJob without its runtime does not.
CASES += [
    (name, "undecided", "runtime 'torch'", [TRAIN_JOB])
    for name in ("shared-memory", "locked-memory", "numa", "eviction")
]
CASES += [
    ("termination-grace", "undecided", "runtime 'torch'", [TRAIN_JOB]),
    (
        *("job-project", "undecided", "runtime 'torch'"),
        [changed({"metadata namespace": "other"}, TRAIN_JOB)],
    ),
    ("equal-environment", "undecided", "runtime 'torch'", [TRAIN_JOB]),
]

NEVER = {
    ("fabric-addresses", "warn"): "one of the networks is of the fabric, or none",
    ("job-project", "fail"): "the job runs, and nobody knows whose it is",
    ("attachment-definition", "warn"): "a definition is there and can be read, or not",
    ("pod-addresses", "warn"): "two pods have one address, or not",
    ("single-network", "fail"): "the job runs, below its speed",
    ("algorithm-tuning", "fail"): "the job runs, perhaps below its speed",
}
"""Verdicts that a check does not have, and why."""


UP, DOWN, SMALL = (
    NodeInterface(True, "9000"),
    NodeInterface(False, "9000"),
    NodeInterface(True, "1500"),
)
MASTERS = [
    ("pass", "eth1 on 2 nodes", "eth1", {"a": {"eth1": UP}, "b": {"eth1": UP, "eth0": DOWN}}),
    (
        "warn",
        "MTU of eth1 is 9000",
        "eth1",
        {"a": {"eth1": UP}, "b": {"eth1": UP}, "c": {"eth1": SMALL}},
    ),
    ("fail", "node b does not have", "eth1", {"a": {"eth1": UP}, "b": {"eth0": UP}}),
    ("fail", "is down on node b", "eth1", {"a": {"eth1": UP}, "b": {"eth1": DOWN}}),
    ("undecided", "node b are not shown", "eth1", {"a": {"eth1": UP}, "b": {}}),
    ("undecided", "none that agents show", "bond0.7", {"a": {"bond0": UP}}),
    ("skip", "for their agents to tell", "eth1", None),
    ("skip", "no network that is known", "", {"a": {"eth1": UP}}),
]


@pytest.mark.parametrize(("verdict", "seen", "master", "nodes"), MASTERS)
def test_a_network_hangs_on_an_interface_of_every_node(verdict, seen, master, nodes):
    (job,) = read(JOB, network(master=master)).jobs
    outcome = outcome_of(lambda: attachment_master(replace(job, interfaces=nodes)))
    got = "undecided" if outcome.undecided else outcome.verdict
    assert (got, seen in outcome.seen) == (verdict, True), outcome


@pytest.mark.parametrize(
    ("layout", "nodes", "leaving"),
    [
        ("all-reduce", 2, 1.0),
        ("all-reduce", 4, 1.5),
        ("sharded", 4, 2.25),
        ("sharded", 1000, 2.997),
    ],
)
def test_what_leaves_a_node_follows_from_the_layout(layout, nodes, leaving):
    assert leaving_bytes(layout, nodes, 1.0) == pytest.approx(leaving)


@pytest.mark.parametrize(
    ("check", "verdict", "seen", "manifests"), CASES, ids=[f"{c}-{v}-{s}" for c, v, s, _ in CASES]
)
def test_a_check_concludes(check, verdict, seen, manifests):
    outcome = outcomes(*manifests, settings=MEASURED)[check]
    got = "undecided" if outcome.undecided else outcome.verdict
    assert (got, seen in outcome.seen) == (verdict, True), outcome
    assert bool(outcome.remedy) == bool(outcome.expected) == (verdict in {"warn", "fail"})


def test_each_check_is_seen_with_each_verdict_that_it_has():
    seen = {(check, verdict) for check, verdict, _, _ in CASES}
    seen |= {("attachment-master", verdict) for verdict, *_ in MASTERS}
    for check in IDS:
        for verdict in ("pass", "warn", "fail", "undecided"):
            assert ((check, verdict) in seen) != ((check, verdict) in NEVER), (check, verdict)
    assert {check for check, _ in NEVER} <= set(IDS)


def test_nothing_is_wrong_with_the_job_that_the_others_are_made_from():
    found = outcomes(JOB, NETWORK, CLAIM, settings=MEASURED)
    assert {name for name, one in found.items() if one.verdict in {"warn", "fail"}} == set()
    assert not any(one.undecided for one in found.values())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("eth", ["eth0", "eth1"]),
        ("=eth", []),
        ("=eth1,net1", ["eth1", "net1"]),
        ("^eth", ["lo", "net1"]),
        ("^=eth0", ["eth1", "lo", "net1"]),
        ("net,lo", ["lo", "net1"]),
    ],
)
def test_interfaces_are_matched_as_nccl_does(value, expected):
    assert matching(value, ["eth0", "eth1", "lo", "net1"]) == expected


def test_checks_by_the_configuration_are_left_where_there_is_none_or_it_says_nothing():
    for settings, why in ((Settings(), "--config"), (Settings(configuration=Configuration()), "")):
        found = outcomes(JOB, NETWORK, settings=settings)["fabric-addresses"]
        assert (found.verdict, found.undecided) == ("skip", False)
        assert why in found.seen
    assert outcomes(JOB, settings=Settings())["job-project"].verdict == "skip"
