"""Whose processes a procfs shows: the node's, or only a container's."""

from __future__ import annotations

from pathlib import Path

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h: the inode is the same in every
kernel."""

OWN_PROCFS = Path("/proc")


def shows_node_processes(procfs: Path, own: Path = OWN_PROCFS) -> bool:
    """Return True if process 1 of this procfs is the node's first process, not a container's.

    This is the case in the initial PID namespace, and for a procfs mounted from elsewhere, because
    another container's procfs is never mounted.
    """
    if procfs != own:
        return True
    try:
        return str((own / "self" / "ns" / "pid").readlink()) == INITIAL_PID_NAMESPACE
    except OSError:
        return False
