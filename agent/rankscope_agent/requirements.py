"""What each collector needs of its node, and which part of the deployment brings it."""

from __future__ import annotations

from collections.abc import Mapping

COMPONENTS: Mapping[str, str] = {
    "training": "hostPath /var/lib/kubelet/pods: component probe",
    "flight_recorder": "hostPath /var/lib/kubelet/pods: component probe",
    "nccl_inspector": "hostPath /var/lib/kubelet/pods: component probe",
    "nccl_log": "hostPath /var/log/pods: base",
    "pods": "hostPath /var/lib/kubelet/pod-resources, root and a role for pods: base",
    "api": "a role that lists and watches pods: base",
    "kubelet": "hostPath /var/lib/kubelet/pod-resources and root: base",
    "processes": "hostPID, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: component tier-2",
    "rdma": "hostPath /sys at --path.sysfs: base",
    "topology": "hostPath /sys at --path.sysfs: base",
    "netdev": "hostPath /sys at --path.sysfs: base; counters of hosts and pods: component tier-1;"
    " ethtool: component host-network",
    "host": "hostPID for pods' own figures: component tier-1",
    "nvml": "the driver: component nvml; without it a dcgm-exporter: component dcgm",
    "dcgm": "--dcgm.url: component dcgm",
    "kernel_log": "CAP_SYSLOG: component tier-3; or journald's files: component journal",
    "nccl_ras": "--nccl.ras-address, and for jobs on the host component host-network",
}
"""By collector, or source of the pods collector: what it takes, and the kustomize component of
daemonset/ that adds it."""

DENIED = "; where SELinux is enforcing, component selinux lets host files be read"
"""SELinux denies in the same words as file modes do."""


def brings(collector: str, failure: str = "") -> str:
    """Return what a collector takes as an end of a sentence, empty for one without needs."""
    needs = COMPONENTS.get(collector)
    denied = DENIED if "denied" in failure or "not permitted" in failure else ""
    return f" (takes {needs}{denied})" if needs else ""
