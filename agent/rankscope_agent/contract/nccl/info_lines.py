"""NCCL's meaningful INFO lines: how each begins and which function reads it, declared once.

`lines.SCAN` selects records by these beginnings, and the parser reads them by `info_line`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from rankscope_agent.contract.nccl import signs
from rankscope_agent.contract.nccl.facts import Process

Subject = Literal["communicator", "timings", "channels", "collnet", "process", "nothing"]

Reader = Callable[[Process, str], tuple[str, ...]]
"""Records what a line says about a process; returns the codes of the warnings that it implies."""


class InfoLine(NamedTuple):
    """One kind of line.

    Args:
        begins: its first characters.
        goes_on: pattern of what follows the first characters.
        subject: what the line is about; the parser reads all lines but those about a process.
        read: reads a line about a process.
    """

    begins: bytes
    goes_on: bytes
    subject: Subject
    read: Reader | None = None


INFO_LINES: tuple[InfoLine, ...] = (
    InfoLine(b"Using network ", b"", "process", signs.read_network),
    InfoLine(b"Using internal ", rb"[nN]etwork ", "process", signs.read_network),
    InfoLine(b"Using ", rb"\d+ (?:\w+ )?channels", "channels"),
    InfoLine(b"comm 0x", b"", "communicator"),
    InfoLine(b"ncclComm", b"", "communicator"),
    InfoLine(b"Init timings", b"", "timings"),
    InfoLine(b"Bootstrap", b"", "process", signs.read_bootstrap),
    InfoLine(b"NET/", b"", "process", signs.read_net),
    InfoLine(b"NCCL_", b"", "process", signs.read_environment),
    InfoLine(b"NCCL version ", b"", "process", signs.read_version),
    InfoLine(b"Failed to ", b"", "process", signs.read_failure),
    InfoLine(b"Initialized NET", b"", "nothing"),  # as `Using network`, which follows
    InfoLine(b"Assigned NET", b"", "process", signs.read_network),
    InfoLine(b"Could not ", b"", "process", signs.read_peers),
    InfoLine(b"CollNet ", b"", "collnet"),
    InfoLine(b"NVLS multicast support is available", b"", "process", signs.read_peers),
    InfoLine(b"", rb"\d+(?: (?:coll channels|: |-> )|\[[0-9a-f]+\] -> )", "channels"),
    InfoLine(b"[send] via ", b"", "channels"),
    InfoLine(b"[receive] via ", b"", "channels"),
    InfoLine(b"transport/net_", b"", "process", signs.read_back_trace),
    InfoLine(b"Loading topology", b"", "process", signs.read_topology),
    InfoLine(b"RAS declaring", b"", "process", signs.read_peers),
)

BEGINNINGS = b"|".join(re.escape(line.begins) + line.goes_on for line in INFO_LINES)
"""A pattern of all beginnings."""

_START_LENGTH = 4


def _by_start() -> Mapping[bytes, Sequence[InfoLine]]:
    """Index the kinds by first character, so that the last one is found as fast as the first."""
    found: dict[bytes, list[InfoLine]] = {}
    for line in INFO_LINES:
        found.setdefault(line.begins[:_START_LENGTH], []).append(line)
    return found


_BY_START = _by_start()
_UNSPELLED = _BY_START[b""]


def info_line(text: bytes) -> InfoLine | None:
    """Return the kind of a line that `BEGINNINGS` matches; None for the rest of a torn line."""
    for line in _BY_START.get(text[:_START_LENGTH], _UNSPELLED):
        if text.startswith(line.begins):
            return line
    return None
