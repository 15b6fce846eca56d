"""How many file descriptors the agent wants, and the share that each source may keep open."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from types import MappingProxyType

from rankscope_agent.contract.descriptor_limit import allow_descriptors

WANTED = 16_384
"""Enough for every source's own limit: 1,024 rings of four files, 256 logs of six files, the
counters of 16 RDMA ports. Services often start with a soft limit of 1,024."""

SHARES: Mapping[str, float] = MappingProxyType(
    {"rdma": 0.2, "training": 0.25, "nccl_log": 0.1, "netdev": 0.1, "nccl_inspector": 0.05}
)
"""The share of all descriptors that one source may keep. The rest is for connections, at most 288,
and for files that are open briefly: no source's many files may prevent another from reading."""

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that say nothing about the file being opened."""


def share(source: str) -> int:
    """Return the number of descriptors that a source may keep open."""
    return int(allow_descriptors(WANTED) * SHARES[source])


def raise_if_exhausted(error: OSError) -> None:
    """Raise an error that says nothing about a file, before the file is taken to be missing."""
    if error.errno in EXHAUSTED:
        raise error
