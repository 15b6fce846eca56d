"""The container that a process belongs to, from /proc/PID/cgroup.

In its own cgroup namespace the agent sees others' paths relative to itself
(`0::/../../kubepods...`), so paths are read from the end and never anchored at the root.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_CGROUP_BYTES = 16384
"""Bytes read of a cgroup file: cgroup v1 has a dozen lines, each shorter than PATH_MAX."""

_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[./:]|$)")
"""The path component of a pod: the UID, with underscores under systemd, or the 32 hex digits of the
hash of a static pod's configuration (kubelet pkg/kubelet/cm)."""

_CONTAINER = re.compile(r"(?:^|[-:/])([0-9a-f]{64})(?:\.scope)?(?=/|$)")
"""The path component of a container: `cri-containerd-ID.scope`, `crio-ID.scope`, `docker-ID.scope`,
plain `ID` with the cgroupfs driver, or `...slice:cri-containerd:ID`."""

_MONITOR = re.compile(r"crio-conmon-|/libpod-conmon-")
"""The runtime's own process for a container."""

_SLURM = re.compile(r"(?:slurmstepd\.scope|/slurm(?:_[^/]+)?/uid_\d{1,10})/job_(\d{1,10})")
"""The path component of Slurm, in cgroup v2 and v1 (plugins cgroup/v2 and cgroup/v1)."""

_USERS_OWN = re.compile(r"(?:^|/)user(?:\.slice|@)")
"""The component below which a user may create groups of any name."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a process runs; an empty text stands for unknown.

    Args:
        pod_uid: with hyphens, or the configuration hash of a static pod.
        container_id: 64 hex digits.
        slurm_job: the job's number, if Slurm created the cgroup.
    """

    pod_uid: str = ""
    container_id: str = ""
    slurm_job: str = ""


def parse_cgroup(text: str) -> Placement:
    """Read /proc/PID/cgroup of either version; the first line that names a pod or a job counts."""
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        if _MONITOR.search(path):
            continue
        # The outermost one: a container may be allowed to create groups of any name below its own.
        pod = _POD.search(path)
        slurm = _SLURM.search(path)
        if slurm and not pod and _USERS_OWN.search(path[: slurm.start()]):
            slurm = None
        if not (pod or slurm):
            continue
        containers = _CONTAINER.findall(path[pod.end() :] if pod else path)
        return Placement(
            pod_uid=pod[1].replace("_", "-") if pod else "",
            container_id=containers[0] if containers else "",
            slurm_job=slurm[1] if slurm else "",
        )
    return Placement()
