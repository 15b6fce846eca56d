"""What a collector needs to read its source: the agent's identity and missing deployment parts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.contract.sources import BY_COLLECTOR_OR_PART

UNCONFINED = ("spc_t", "control_t", "super_t", "unconfined_t", "unconfined_service_t")
"""SELinux types of processes that may read all files: super-privileged containers (Bottlerocket
calls spc_t control_t), and processes outside of containers."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity that decides which files a process may read.

    Args:
        user: its effective user id.
        selinux: the type that SELinux confines it to; empty without SELinux.
    """

    user: int
    selinux: str


def identity(process: Path = Path("/proc/self")) -> Identity:
    """Return the agent's identity; a label has four parts or more only with SELinux."""
    try:
        label = (process / "attr" / "current").read_text(encoding="utf-8", errors="replace")
    except OSError:  # a kernel without security modules refuses to read it
        label = ""
    parts = label.strip("\0\n").split(":")
    return Identity(os.geteuid(), parts[2] if len(parts) > 3 else "")


def remedy_text(collector: str, failure: str = "", agent: Identity | None = None) -> str:
    """Return a collector's needs as the end of a sentence; empty for a collector without needs.

    Args:
        collector: its name, or the name of a part of its source.
        failure: its message; if access was denied, what would allow it is added.
        agent: the identity that was denied access; that of the running process by default.
    """
    seen = BY_COLLECTOR_OR_PART.get(collector)
    if seen is None:
        return ""
    denied = _lets_read(agent or identity()) if "ermission denied" in failure else ""
    return f" (needs {seen.needs}{denied})"


def _lets_read(agent: Identity) -> str:
    """Name what an agent lacks to read existing files."""
    if agent.selinux and agent.selinux not in UNCONFINED:
        return f"; SELinux confines the agent as {agent.selinux}: component selinux"
    if agent.user != 0:
        return f"; files of the host require root, but the agent runs as user {agent.user}: base"
    return "; files that plain root may not read require CAP_DAC_READ_SEARCH: component tier-2"
