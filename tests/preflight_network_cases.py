"""Cases of preflight's checks of the networks that pods are attached to."""

from __future__ import annotations

import json
from typing import Any

from preflight_jobs import GONE, JOB, NETWORK, PLAIN_SOCKETS, POD, Case, changed
from rankscope_analyzers.preflight.job import NodeInterface


def network(**changes: Any) -> dict[str, Any]:
    config = {"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.1.0.0/16"}}
    return changed({"spec config": json.dumps(config | changes)}, NETWORK)


def rail(name: str, range_: str) -> dict[str, Any]:
    made = network(ipam={"type": "whereabouts", "range": range_})
    return changed({"metadata name": name}, made)


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


STATUS = "notes k8s.v1.cni.cncf.io/network-status"
POD_STATUS = "metadata annotations k8s.v1.cni.cncf.io/network-status"
NETWORKS = "notes k8s.v1.cni.cncf.io/networks"

NETWORK_CASES: list[Case] = [
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
]

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
