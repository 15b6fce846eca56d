"""Counters of the interfaces in a pod's network, as the procfs of one of its processes shows them.

/proc/PID/net is that process's network and open to everybody who sees the process. Inside its
network a pod may make interfaces and name them as it likes: numbers and names are bounded here.
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
"""Interfaces of all pods together, dealt out in turns: eight pods of eight, or one rail each."""

PRIMARY = "eth0"  # what every runtime calls the pod's own interface (CNI_IFNAME)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}")
"""Names that become labels. The kernel allows 15 bytes of nearly anything."""


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """The interfaces of one pod.

    Args:
        process: one of its processes, whose network this is.
        traffic: counters by name, those with usable names, in order of importance.
        unnamed: how many others there are at least.
    """

    uid: str
    process: int
    traffic: Mapping[str, Traffic]
    unnamed: int


def read_network(procfs: Path, group: PodGroup) -> PodNetwork | None:
    """Read a pod's interfaces; None if its processes have ended or cannot be seen."""
    process = group.process()
    if process is None:
        return None
    folder = procfs / str(process)
    try:
        table = read_bytes(folder / "net" / "dev", MAX_TABLE_BYTES).decode("utf-8", "replace")
        # Numbers are reused: the process that has this one now must still be of the pod.
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

    Which network a process is in may be asked only by who may trace it; what its counters show may
    be seen by all. They are the node's if the names are, and each count lies between those of a
    look before and a look after.
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
    """Return by pod the interfaces that are exported, a turn for each pod until none is left."""
    chosen: dict[str, list[str]] = {network.uid: [] for network in networks}
    left = MAX_PER_NODE
    for turn in range(MAX_PER_POD):
        for network in networks:
            names = tuple(network.traffic)
            if left and turn < len(names):
                chosen[network.uid].append(names[turn])
                left -= 1
    return chosen
