"""What a collector needs to see its source: the agent's identity and missing deployment parts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.contract.sources import BY_COLLECTOR_OR_PART

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


def remedy_text(collector: str, failure: str = "", agent: Identity | None = None) -> str:
    """Return what a collector takes as an end of a sentence, empty for one without needs.

    Args:
        collector: its name, or that of a part of its source.
        failure: its message; what lets files be read is named where it was denied.
        agent: who was denied, the running process unless given.
    """
    seen = BY_COLLECTOR_OR_PART.get(collector)
    if seen is None:
        return ""
    denied = _lets_read(agent or identity()) if "ermission denied" in failure else ""
    return f" (takes {seen.needs}{denied})"


def _lets_read(agent: Identity) -> str:
    """Name what stands between an agent and files that are there."""
    if agent.selinux and agent.selinux not in UNCONFINED:
        return f"; SELinux confines the agent as {agent.selinux}: component selinux"
    if agent.user != 0:
        return f"; files of the host take root, and the agent runs as user {agent.user}: base"
    return "; files that root may not read as such take CAP_DAC_READ_SEARCH: component tier-2"
