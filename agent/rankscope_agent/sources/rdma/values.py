"""Pure parsers of the short texts in sysfs about RDMA devices and ports."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_COUNTER = 2**64 - 2
"""Largest count accepted: a failed read of the adapter returns all 64 bits set (-1)."""

ACTIVE = 4  # IB_PORT_ACTIVE of the kernel's ib_verbs.h
ACTIVE_STATES = (ACTIVE, 5)  # IB_PORT_ACTIVE_DEFER: active, with errors on the way down

BITS_PER_BYTE = 8

_STATE = re.compile(r"([0-9]{1,2}):")
_RATE = re.compile(
    r"(?P<rate>[0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec(?: \((?P<width>[0-9]{1,2}X)"
    r"(?: (?P<speed>[A-Z0-9]{2,8}))?\))?",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\w .:+/-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rate:
    """A link's rate, and its lanes (`4X`) and speed (`NDR`), empty if not given."""

    bytes_per_second: float
    width: str
    speed: str


def parse_count(raw: bytes) -> int | None:
    """Read a counter; return None for anything else: `N/A (no PMA)`, negative, beyond 64 bits."""
    if not raw.strip().isdigit():
        return None
    value = int(raw)
    return value if value <= MAX_COUNTER else None


def parse_state(text: str) -> int | None:
    """Read the number of `4: ACTIVE` or `5: LinkUp`."""
    match = _STATE.match(text)
    return int(match[1]) if match else None


def parse_rate(text: str) -> Rate | None:
    """Read `400 Gb/sec (4X NDR)`."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        return None
    bits = float(match["rate"]) * 1e9
    return Rate(bits / BITS_PER_BYTE, match["width"] or "", (match["speed"] or "").upper())


def label_text(text: str) -> str:
    """Return a descriptive text as a label; empty if it is absent, long or odd."""
    stripped = text.strip()
    return stripped if _WORD.fullmatch(stripped) else ""
