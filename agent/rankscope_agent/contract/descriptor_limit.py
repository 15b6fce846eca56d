"""The limit of open file descriptors of this process."""

from __future__ import annotations

import resource


def allow_descriptors(wanted: int) -> int:
    """Raise this process's soft limit of descriptors as far as allowed; return the result."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    reachable = wanted if hard == unlimited else min(wanted, hard)
    if soft != unlimited and soft < reachable:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
        return reachable
    return wanted if soft == unlimited else soft
