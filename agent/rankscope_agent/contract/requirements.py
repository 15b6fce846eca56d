"""What each collector needs of its node, and which part of the deployment brings it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

COMPONENTS: Mapping[str, str] = {
    "training": "hostPath /var/lib/kubelet/pods: component probe",
    "flight_recorder": "hostPath /var/lib/kubelet/pods: component probe",
    "starvation": "hostPID beside the rings: components probe and tier-1",
    "nccl_inspector": "hostPath /var/lib/kubelet/pods: component probe",
    "nccl_log": "hostPath /var/log/pods: base",
    "pods": "hostPath /var/lib/kubelet/pod-resources, root and a role for pods: base",
    "api": "a role that lists and watches pods: base",
    "kubelet": "hostPath /var/lib/kubelet/pod-resources and root: base",
    "processes": "hostPID, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: component tier-2",
    "rdma": "hostPath /sys at --path.sysfs: base",
    "topology": "hostPath /sys at --path.sysfs: base",
    "netdev": "hostPath /sys at --path.sysfs: base; the node's TCP: component tier-1;"
    " ethtool: component host-network",
    "host": "hostPID for pods' limits and the node's NFS: component tier-1",
    "nvml": "the driver: component nvml; without it a dcgm-exporter: component dcgm",
    "dcgm": "--dcgm.url: component dcgm",
    "kernel_log": "CAP_SYSLOG: component tier-3; or journald's files: component journal",
    "nccl_ras": "--nccl.ras-address, and for jobs on the host component host-network",
}
"""By collector, or source of the pods collector: what it takes, and the kustomize component of
daemonset/ that adds it."""

UNCONFINED = ("spc_t", "control_t", "super_t", "unconfined_t", "unconfined_service_t")
"""Types of processes that SELinux lets read all files: of super-privileged containers (Bottlerocket
calls spc_t control_t), and those outside of containers."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What decides on files that a process may read.

    Args:
        user: its effective user id.
        selinux: the type that SELinux confines it to, empty where there is no SELinux.
    """

    user: int
    selinux: str


def identity(process: Path = Path("/proc/self")) -> Identity:
    """Return who the agent is; a label has four parts or more only with SELinux."""
    try:
        label = (process / "attr" / "current").read_text(encoding="utf-8", errors="replace")
    except OSError:  # a kernel without security modules refuses to read it
        label = ""
    parts = label.strip("\0\n").split(":")
    return Identity(os.geteuid(), parts[2] if len(parts) > 3 else "")


def brings(collector: str, failure: str = "", agent: Identity | None = None) -> str:
    """Return what a collector takes as an end of a sentence, empty for one without needs.

    Args:
        collector: its name, or that of a source of the pods collector.
        failure: what it said; what lets files be read is named where it was denied.
        agent: who was denied, the running process unless given.
    """
    needs = COMPONENTS.get(collector)
    if not needs:
        return ""
    denied = _lets_read(agent or identity()) if "ermission denied" in failure else ""
    return f" (takes {needs}{denied})"


def _lets_read(agent: Identity) -> str:
    """Name what stands between an agent and files that are there."""
    if agent.selinux and agent.selinux not in UNCONFINED:
        return f"; SELinux confines the agent as {agent.selinux}: component selinux"
    if agent.user != 0:
        return f"; files of the host take root, and the agent runs as user {agent.user}: base"
    return "; files that root may not read as such take CAP_DAC_READ_SEARCH: component tier-2"
