"""Link events and error counters by rtnetlink, in the network of this process.

The socket is the standard library's and never blocks; pyroute2 decodes what arrives on it. Links
are not dumped: one message is asked for that holds the statistics of all.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rankscope_agent.netdev.counters import DETAILS

RTMGRP_LINK = 1
RTM_NEWLINK, RTM_NEWSTATS, RTM_GETSTATS = "RTM_NEWLINK", "RTM_NEWSTATS", 94
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
LAST_TYPES = (2, 3)  # NLMSG_ERROR, NLMSG_DONE
LINK_64 = 1  # IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64)

RECEIVE_BYTES = 1 << 16
"""The kernel's largest rtnetlink message fits."""

BUFFER_BYTES = 1 << 20
"""Room for some 700 events between two looks; if it overflows the kernel says so once."""

MAX_MESSAGES = 4096
"""Datagrams taken at one look: a node that makes links faster is read at the next ones."""

REPLY_SECONDS = 1.0

_REQUEST = struct.Struct("=IHHII BBHII")  # struct nlmsghdr, struct if_stats_msg

Decode = Callable[[bytes], Iterable[Mapping[str, Any]]]


class Marshal(Protocol):
    """What decodes a datagram into messages."""

    def parse(self, data: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the messages."""
        ...


@dataclass(frozen=True, slots=True)
class LinkState:
    """An interface's state in one event."""

    name: str
    carrier: bool | None
    state: str


def create_decoder() -> Decode:
    """Import pyroute2 and return its decoder of rtnetlink datagrams.

    Raises:
        ImportError: it is not installed.
    """
    from pyroute2.netlink.rtnl.marshal import MarshalRtnl

    marshal: Marshal = MarshalRtnl()
    return lambda data: marshal.parse(data)


def link_states(messages: Iterable[Mapping[str, Any]]) -> Iterator[LinkState]:
    """Yield the states in decoded messages; others are left out."""
    for message in messages:
        if message.get("event") != RTM_NEWLINK:
            continue
        attributes = dict(message.get("attrs", ()))
        name = attributes.get("IFLA_IFNAME")
        if isinstance(name, str):
            carrier = attributes.get("IFLA_CARRIER")
            state = str(attributes.get("IFLA_OPERSTATE", ""))
            yield LinkState(name, None if carrier is None else bool(carrier), state)


def error_details(messages: Iterable[Mapping[str, Any]]) -> Mapping[int, Mapping[str, int]]:
    """Return the detailed errors in decoded statistics, by the interface's index."""
    found = {}
    for message in messages:
        if message.get("event") != RTM_NEWSTATS:
            continue
        counts = dict(message.get("attrs", ())).get("IFLA_STATS_LINK_64")
        if counts is not None:
            found[int(message["ifindex"])] = {
                name: int(counts[name])
                for name in DETAILS
                if name in counts.keys()  # noqa: SIM118
            }
    return found


class LinkMonitor:
    """Hears of links that change, and asks for statistics."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._events = _open(RTMGRP_LINK)
        self._queries = _open(0)
        self._queries.setblocking(True)
        self._queries.settimeout(REPLY_SECONDS)
        self._states: dict[str, LinkState] = {}
        self._sequence = 0

    def close(self) -> None:
        """Give the sockets back."""
        self._events.close()
        self._queries.close()

    def changed(self) -> Iterator[str]:
        """Yield the interfaces whose state or carrier changed since the last call.

        An interface's first event is a change: nothing is sent about one that stays as it is.
        """
        for data in self._arrived():
            for state in link_states(self._decode(data)):
                if self._states.get(state.name) != state:
                    self._states[state.name] = state
                    yield state.name
        if len(self._states) > MAX_MESSAGES:
            self._states.clear()

    def details(self) -> Mapping[int, Mapping[str, int]]:
        """Return the detailed errors of all interfaces by index.

        Raises:
            OSError: the kernel does not answer.
        """
        self._sequence += 1
        flags = NLM_F_REQUEST | NLM_F_DUMP
        request = _REQUEST.pack(
            _REQUEST.size, RTM_GETSTATS, flags, self._sequence, 0, 0, 0, 0, 0, LINK_64
        )
        self._queries.send(request)
        found: dict[int, Mapping[str, int]] = {}
        for _ in range(MAX_MESSAGES):
            messages = list(self._decode(self._queries.recv(RECEIVE_BYTES)))
            found.update(error_details(messages))
            if any(message["header"]["type"] in LAST_TYPES for message in messages):
                break
        return found

    def _arrived(self) -> Iterator[bytes]:
        for _ in range(MAX_MESSAGES):
            data = self._next()
            if data is None:
                return
            yield data

    def _next(self) -> bytes | None:
        """Return the next datagram, None when there is none, empty when events were lost."""
        try:
            return self._events.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return b""
            raise


def _open(groups: int) -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    made = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    made.bind((0, groups))
    return made
