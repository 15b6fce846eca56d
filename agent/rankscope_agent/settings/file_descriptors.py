"""The limit of open file descriptors, and the share that each source may keep open."""

from __future__ import annotations

import errno
import resource
from collections.abc import Mapping
from types import MappingProxyType

WANTED = 16_384
"""Enough for every source's own limit: 1,024 rings with their extensions, 256 logs of six files,
the counters of 16 RDMA ports. Services often start with a soft limit of 1,024."""

SHARES: Mapping[str, float] = MappingProxyType(
    {"rdma": 0.25, "training": 0.2, "nccl_log": 0.1, "netdev": 0.1, "nccl_inspector": 0.05}
)
"""What part of all descriptors a source may keep. The rest is for connections, 288 at most, and for
what is open for a moment: no source's many files may keep another from looking."""

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Failures that say nothing of the file that was to be opened."""


def allow_descriptors(wanted: int = WANTED) -> int:
    """Raise this process' soft limit of descriptors, as far as it may; return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    reachable = wanted if hard == unlimited else min(wanted, hard)
    if soft != unlimited and soft < reachable:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
        return reachable
    return wanted if soft == unlimited else soft


def share(source: str) -> int:
    """Return how many descriptors a source may keep open."""
    return int(allow_descriptors() * SHARES[source])


def raise_if_exhausted(error: OSError) -> None:
    """Raise an error that tells nothing of a file, before its absence is concluded from it."""
    if error.errno in EXHAUSTED:
        raise error
