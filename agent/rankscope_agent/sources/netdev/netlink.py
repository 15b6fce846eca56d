"""Link events and error counters by rtnetlink, in the network of this process.

Sockets for events never block. Links are not dumped: one message is asked for that holds the
statistics of all.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Mapping

from rankscope_agent.sources.netdev.counters import DETAILS
from rankscope_agent.sources.netdev.rtnetlink import (
    NLMSG_DONE,
    NLMSG_ERROR,
    RTM_GETSTATS,
    LinkState,
    link_states,
    messages,
    statistics,
)

RTMGRP_LINK = 1
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
LINK_64 = 1  # IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64)

RECEIVE_BYTES = 1 << 16
"""The kernel's largest rtnetlink message fits."""

BUFFER_BYTES = 1 << 20
"""Room for some 700 events between two looks; if it overflows the kernel says so once."""

MAX_MESSAGES = 4096
"""Datagrams taken at one look: a node that makes links faster is read at the next ones."""

REPLY_SECONDS = 1.0

_REQUEST = struct.Struct("=IHHII BBHII")  # struct nlmsghdr, struct if_stats_msg


class LinkMonitor:
    """Hears of links that change, and asks for statistics."""

    def __init__(self) -> None:
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
            for state in link_states(data):
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
            data = self._queries.recv(RECEIVE_BYTES)
            for index, counts in statistics(data):
                found[index] = {name: counts[name] for name in DETAILS}
            if any(message.type in {NLMSG_ERROR, NLMSG_DONE} for message in messages(data)):
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
