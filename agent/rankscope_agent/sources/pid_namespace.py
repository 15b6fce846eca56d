"""Whose processes a procfs shows: the node's, or only those of a container."""

from __future__ import annotations

from pathlib import Path

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h: the same inode in every kernel."""

OWN_PROCFS = Path("/proc")


def shows_node_processes(procfs: Path, own: Path = OWN_PROCFS) -> bool:
    """Return True if process 1 in this procfs is the node's first process, not a container's.

    That holds in the initial PID namespace, and in a procfs that is mounted from elsewhere:
    another container's is never mounted.
    """
    if procfs != own:
        return True
    try:
        return str((own / "self" / "ns" / "pid").readlink()) == INITIAL_PID_NAMESPACE
    except OSError:
        return False
