"""Counters of the interfaces in a pod's network, from the procfs of one of its processes.

/proc/PID/net is that process's network and readable by everyone who sees the process. Inside its
network a pod may create interfaces with any names: numbers and names are limited here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.sources.host.pod_groups import PodGroup
from rankscope_agent.sources.kernel_files import natural, read_bytes
from rankscope_agent.sources.netdev.interfaces import LOOPBACK
from rankscope_agent.sources.netdev.tables import Traffic, parse_net_dev
from rankscope_agent.sources.pods.cgroups import MAX_CGROUP_BYTES, parse_cgroup

MAX_TABLE_BYTES = 1 << 16
"""Bytes read of a pod's /proc/net/dev: some 500 interfaces, fifty times those of eight rails."""

MAX_PER_POD = 16
"""Interfaces of one pod: its own network, and one for each of eight rails, nearly twice over."""

MAX_PER_NODE = 64
"""Interfaces of all pods together, allotted round robin: eight pods with eight each, or one rail
each."""

PRIMARY = "eth0"  # every runtime's name for the pod's own interface (CNI_IFNAME)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}")
"""Names that become labels. The kernel allows 15 bytes of nearly anything."""


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """The interfaces of one pod.

    Args:
        process: one of its processes, which is in this network.
        traffic: counters by name, of interfaces with usable names, in order of importance.
        unnamed: minimum number of the others.
    """

    uid: str
    process: int
    traffic: Mapping[str, Traffic]
    unnamed: int


def read_network(procfs: Path, group: PodGroup) -> PodNetwork | None:
    """Read a pod's interfaces; return None if its processes have ended or are not visible."""
    process = group.process()
    if process is None:
        return None
    folder = procfs / str(process)
    try:
        table = read_bytes(folder / "net" / "dev", MAX_TABLE_BYTES).decode("utf-8", "replace")
        # PIDs are reused: the process with this one must still belong to the pod.
        cgroup = read_bytes(folder / "cgroup", MAX_CGROUP_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    if parse_cgroup(cgroup).pod_uid != group.uid:
        return None
    traffic = dict(parse_net_dev(table))
    traffic.pop(LOOPBACK, None)
    named = sorted(filter(_NAME.fullmatch, natural(traffic)), key=lambda name: name != PRIMARY)
    usable = {name: traffic[name] for name in named}
    return PodNetwork(group.uid, process, usable, len(traffic) - len(usable))


def is_nodes_own(
    pod: PodNetwork, before: Mapping[str, Traffic], after: Mapping[str, Traffic]
) -> bool:
    """Return True if a pod's interfaces are the node's (hostNetwork).

    Which network a process is in may only be queried with the right to trace it; its counters are
    readable by everyone. It is the node's if the names are the same, and each counter lies between
    the node's values read before and after.
    """
    both = [name for name in pod.traffic if name in before and name in after]
    return (
        bool(both)
        and all(name in before or name in after for name in pod.traffic)
        and all(_between(before[name], pod.traffic[name], after[name]) for name in both)
    )


def _between(before: Traffic, now: Traffic, after: Traffic) -> bool:
    return (
        before.receive_bytes <= now.receive_bytes <= after.receive_bytes
        and before.transmit_bytes <= now.transmit_bytes <= after.transmit_bytes
    )


def deal_out(networks: Sequence[PodNetwork]) -> Mapping[str, Sequence[str]]:
    """Return the interfaces to export, by pod, allotted round robin until the limit."""
    chosen: dict[str, list[str]] = {network.uid: [] for network in networks}
    left = MAX_PER_NODE
    for turn in range(MAX_PER_POD):
        for network in networks:
            names = tuple(network.traffic)
            if left and turn < len(names):
                chosen[network.uid].append(names[turn])
                left -= 1
    return chosen
