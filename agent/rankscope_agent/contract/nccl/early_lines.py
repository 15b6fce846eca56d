"""Reads how NCCL up to 2.3 names communicators: `comm 0x7f12 rank 0 nranks 4` and nothing else.

From 2.4 on more text follows, without which the line was cut off; before, no line marks the end of
initialisation. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rankscope_agent.contract.nccl.facts import MAX_RANK

_LINE = re.compile(
    rb"INFO (?:comm 0x[0-9a-f]{1,16} )?rank (\d{1,8}) nranks (\d{1,8})[ \t\r]{0,4}$", re.MULTILINE
)
_HOST = re.compile(rb"([\w.-]{1,255}):\d{1,10}:\d{1,10} \[-?\d{1,10}\] (?:NCCL )?\Z")
_HOST_BYTES = 300

MAX_LINES = 4096
"""Lines that are examined: jobs of that time had fewer ranks."""


class EarlyCommunicator(NamedTuple):
    """The largest communicator in a log of NCCL up to 2.3.

    Args:
        size: its number of ranks; 0 if there is none.
        one_host: whether all of its ranks are present, on one host, and no other communicator has
            another size.
    """

    size: int
    one_host: bool


def early_communicator(text: bytes) -> EarlyCommunicator:
    """Return the largest communicator named in this form.

    Args:
        text: complete lines.
    """
    ranks: set[int] = set()
    sizes: set[int] = set()
    hosts: set[bytes] = set()
    for _, match in zip(range(MAX_LINES), _LINE.finditer(text), strict=False):
        rank, size = int(match[1]), int(match[2])
        if rank < size <= MAX_RANK:
            ranks.add(rank)
            sizes.add(size)
            start = match.start()
            host = _HOST.search(text[max(0, start - _HOST_BYTES) : start])
            hosts.add(host[1] if host else b"")
    size = max(sizes, default=0)
    whole = len(sizes) == len(hosts) == 1 and b"" not in hosts and len(ranks) == size
    return EarlyCommunicator(size, whole)
