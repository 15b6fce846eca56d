"""Parts of a node that working collectors cannot see because of where the agent runs.

A collector without any source reports that itself. One that has the rest of its sources succeeds,
and the page alone does not show what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from rankscope_agent.sources.host.pod_groups import has_only_version_1
from rankscope_agent.sources.netdev.namespace import in_node_network, may_enter_networks, node_net
from rankscope_agent.sources.pid_namespace import shows_node_processes


def unseen_parts(
    procfs: Path, sysfs: Path, kubelet: Path, collectors: Collection[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return by collector what it does not see, with the component that would provide it.

    Args:
        procfs: the procfs that the agent reads.
        sysfs: the sysfs that it reads.
        kubelet: the kubelet's directory, which only nodes with pods have.
        collectors: those that are switched on.
    """
    parts = {
        "netdev": tuple(_network(procfs, sysfs)),
        "host": (*_processes(procfs), *_pod_counters(sysfs, kubelet)),
        "pod_netdev": tuple(_pod_networks(procfs, sysfs, kubelet)),
    }
    return {name: lines for name, lines in parts.items() if lines and name in collectors}


def _network(procfs: Path, sysfs: Path) -> list[str]:
    lines = []
    if node_net(procfs) is None:
        lines.append(
            f"the node's TCP counters: {procfs} shows a PID namespace other than the node's (needs"
            " hostPID: component tier-1)"
        )
    if not in_node_network(procfs, sysfs):
        lines.append(
            "drivers' statistics, PFC pauses and link events: the agent is in its own network"
            " (needs hostNetwork: component host-network)"
        )
    return lines


def _processes(procfs: Path) -> list[str]:
    if shows_node_processes(procfs):
        return []
    return [
        f"limits of training processes and the node's NFS mounts: {procfs} shows a PID namespace"
        " other than the node's (needs hostPID: component tier-1)"
    ]


def _pod_counters(sysfs: Path, kubelet: Path) -> list[str]:
    if not _lacks_pod_groups(sysfs, kubelet):
        return []
    return [
        "I/O, CPU throttling, pressure, out-of-memory kills, limits and shared memory of training"
        f" pods: {_version_1(sysfs)}"
    ]


def _lacks_pod_groups(sysfs: Path, kubelet: Path) -> bool:
    """Return whether the cgroups of pods are of version 1, of which nothing is read."""
    try:
        has_pods = kubelet.is_dir()
    except PermissionError:
        has_pods = True
    return has_pods and has_only_version_1(sysfs / "fs" / "cgroup")


def _version_1(sysfs: Path) -> str:
    return (
        f"{sysfs / 'fs' / 'cgroup'} has cgroup version 1 (needs cgroup version 2: the kernel's"
        " parameter systemd.unified_cgroup_hierarchy=1)"
    )


def _pod_networks(procfs: Path, sysfs: Path, kubelet: Path) -> list[str]:
    if not shows_node_processes(procfs):
        return []
    if _lacks_pod_groups(sysfs, kubelet):
        return [f"interfaces of training pods: {_version_1(sysfs)}"]
    if may_enter_networks(procfs, sysfs):
        return []
    return [
        "kind, MTU, state and speed of interfaces inside pods: the agent may not enter their"
        " network namespaces (needs the node's network, CAP_SYS_ADMIN and CAP_SYS_PTRACE, which no"
        " component gives)"
    ]
