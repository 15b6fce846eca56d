"""What an agent needs of the kernel's rtnetlink messages: links' states and error counters.

Pure. Layouts are those of linux/netlink.h, linux/rtnetlink.h and linux/if_link.h. The two messages
are decoded here because a library for all of netlink holds 12 MiB on every node for them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

RTM_NEWLINK, RTM_NEWSTATS, RTM_GETSTATS = 16, 92, 94
NLMSG_ERROR, NLMSG_DONE = 2, 3
IFLA_IFNAME, IFLA_OPERSTATE, IFLA_CARRIER = 3, 16, 33
IFLA_STATS_LINK_64 = 1
ATTRIBUTE_TYPE = 0x3FFF
"""Without the flags for nested attributes and byte order."""

ALIGNMENT = 4

_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_ATTRIBUTE = struct.Struct("=HH")  # struct rtattr
_LINK = struct.Struct("=BxHiII")  # struct ifinfomsg
_STATISTICS = struct.Struct("=BBHII")  # struct if_stats_msg

STATES = (
    *("UNKNOWN", "NOTPRESENT", "DOWN", "LOWERLAYERDOWN"),
    *("TESTING", "DORMANT", "UP"),
)
"""Operational states by number (RFC 2863, linux/if.h)."""

COUNTERS = (
    *("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors"),
    *("rx_dropped", "tx_dropped", "multicast", "collisions"),
    *("rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors"),
    *("rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors"),
    *("tx_fifo_errors", "tx_heartbeat_errors", "tx_window_errors"),
)
"""First fields of struct rtnl_link_stats64; newer kernels append others."""

_COUNTERS = struct.Struct(f"={len(COUNTERS)}Q")


@dataclass(frozen=True, slots=True)
class Message:
    """One netlink message: its type, and what follows the header."""

    type: int
    body: memoryview


@dataclass(frozen=True, slots=True)
class LinkState:
    """An interface's state in one event."""

    name: str
    carrier: bool | None
    state: str


def messages(data: bytes) -> Iterator[Message]:
    """Yield a datagram's messages, up to the first whose length cannot be."""
    view, place = memoryview(data), 0
    while place + _HEADER.size <= len(view):
        length, kind, *_ = _HEADER.unpack_from(view, place)
        if not _HEADER.size <= length <= len(view) - place:
            return
        yield Message(kind, view[place + _HEADER.size : place + length])
        place += _aligned(length)


def link_states(data: bytes) -> Iterator[LinkState]:
    """Yield the states in a datagram's link messages; others are left out."""
    for message in messages(data):
        if message.type != RTM_NEWLINK:
            continue
        found = dict(_attributes(message.body[_LINK.size :]))
        name = bytes(found.get(IFLA_IFNAME, b"")).rstrip(b"\0").decode("utf-8", "replace")
        carrier, state = (_octet(found.get(kind)) for kind in (IFLA_CARRIER, IFLA_OPERSTATE))
        known = state is not None and state < len(STATES)
        if name:
            yield LinkState(
                name,
                None if carrier is None else bool(carrier),
                STATES[state or 0] if known else "",
            )


def statistics(data: bytes) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield an interface's index and counters for each statistics message of a datagram."""
    for message in messages(data):
        if message.type != RTM_NEWSTATS or len(message.body) < _STATISTICS.size:
            continue
        index = _STATISTICS.unpack_from(message.body)[3]
        counts = dict(_attributes(message.body[_STATISTICS.size :])).get(IFLA_STATS_LINK_64)
        if counts is not None and len(counts) >= _COUNTERS.size:
            yield index, dict(zip(COUNTERS, _COUNTERS.unpack_from(counts), strict=True))


def _attributes(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    place = 0
    while place + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, place)
        if not _ATTRIBUTE.size <= length <= len(data) - place:
            return
        yield kind & ATTRIBUTE_TYPE, data[place + _ATTRIBUTE.size : place + length]
        place += _aligned(length)


def _octet(value: memoryview | None) -> int | None:
    return value[0] if value else None


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
