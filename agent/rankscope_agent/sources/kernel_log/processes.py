"""The pod of the process that the kernel refers to by a PID, while this is known.

A line about a crash names a process and no cgroup. The process may still exist, writing its core
dump, or may recently have been seen as a rank. Both require the node's PID namespace.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rankscope_agent.sources.pods.cgroups import MAX_CGROUP_BYTES, parse_cgroup

FRESH_SECONDS = 10.0
"""Age of a line after which its PID may belong to another process: PIDs are reused only after some
thousand processes, and kmsg is read every second."""


def pod_of_process(
    procfs: Path, pid: int | None, seen: Callable[[int], str], *, whole_node: bool
) -> str:
    """Return the UID of the pod of a process; empty if unknown.

    Args:
        procfs: the node's procfs.
        pid: its PID in the node's PID namespace, or that of one of its threads.
        seen: returns the pod of a process that was a rank at the last scan of processes.
        whole_node: whether this procfs shows the node's processes.
    """
    if pid is None or not whole_node:
        return ""
    try:
        # Threads are not listed there, but can be opened all the same.
        descriptor = os.open(procfs / str(pid) / "cgroup", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it has ended
        return seen(pid)
    try:
        text = os.read(descriptor, MAX_CGROUP_BYTES)
    except OSError:
        return seen(pid)
    finally:
        os.close(descriptor)
    return parse_cgroup(text.decode("utf-8", "replace")).pod_uid
