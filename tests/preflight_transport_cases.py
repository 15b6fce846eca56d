"""Cases of preflight's checks of what carries a job's gradients: sockets, RDMA and the fabric."""

from __future__ import annotations

from typing import Any

from preflight_jobs import GONE, JOB, PLAIN_SOCKETS, Case, changed, env, hidden, two_parts

REFERRING = [{"name": "RAIL", "value": "eth"}, {"name": "NCCL_SOCKET_IFNAME", "value": "$(RAIL)0"}]
ELSEWHERE = [{"name": "NCCL_SOCKET_IFNAME", "value": "$(RAIL)0"}]


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


TRANSPORT_CASES: list[Case] = [
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
    (
        *("rdma-devices", "pass", "nvidia.com/hostdev: 8"),
        [changed({"limits rdma/hca": GONE, "limits nvidia.com/hostdev": 8})],
    ),
    ("socket-interface", "pass", "=eth0 matches", [changed({"main +env": REFERRING})]),
    ("socket-interface", "undecided", "$(RAIL)0", [changed({"main +env": ELSEWHERE})]),
    (
        "socket-interface",
        "fail",
        "=$(RAIL)0 matches none",
        [changed({"main +env": [{"name": "NCCL_SOCKET_IFNAME", "value": "$$(RAIL)0"}]})],
    ),
]
