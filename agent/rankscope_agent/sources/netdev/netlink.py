"""Link events, addresses and error counters through rtnetlink, in this process's network namespace.

pyroute2 handles netlink. It takes some 12 MiB, so this module is imported only if the agent runs in
the node's own network. The socket for events never blocks.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTMGRP_LINK, rt_scope
from pyroute2.netlink.rtnl.marshal import MarshalRtnl

from rankscope_agent.sources.netdev.counters import DETAILS

LINK_64 = 1  # IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64)

RECEIVE_BYTES = 1 << 16
"""The kernel's largest rtnetlink message fits."""

BUFFER_BYTES = 1 << 20
"""Space for some 700 events between two readings; if it overflows, the kernel reports that once."""

MAX_MESSAGES = 4096
"""Datagrams read at a time; if links are created faster, the rest is read next time."""

FAMILIES: Mapping[int, str] = {socket.AF_INET: "ipv4", socket.AF_INET6: "ipv6"}


@contextlib.contextmanager
def refused_as_os_error() -> Iterator[None]:
    """Convert the kernel's refusal, for which pyroute2 has its own class, to an OSError."""
    try:
        yield
    except NetlinkError as error:
        raise OSError(error.code, str(error)) from error


class LinkState(NamedTuple):
    """An interface's state in one event; carrier and state are None if not reported."""

    name: str
    carrier: bool | None
    state: str | None


class LinkMonitor:
    """Receives changes of links, and queries addresses and statistics.

    Raises:
        OSError: the kernel provides no socket, or does not answer.
    """

    def __init__(self) -> None:
        self._events = _open_events()
        self._route = IPRoute()
        self._parser = MarshalRtnl()
        # After the socket for events is open: nothing that changes in between is missed.
        with refused_as_os_error():
            known = link_states(self._route.get_links())
            self._states = {state.name: state for state in known}

    def close(self) -> None:
        """Close the sockets."""
        self._events.close()
        self._route.close()

    def changed(self) -> Iterator[str]:
        """Yield the interfaces whose state or carrier has changed since the previous call.

        Events come for other reasons, too, such as another MTU or a sniffer: only those with
        another state or carrier than the last one are changes.
        """
        for data in self._arrived():
            messages = list(self._parser.parse(data))
            for state in link_states(messages):
                if self._states.get(state.name) != state:
                    self._states[state.name] = state
                    yield state.name
            for name in links_gone(messages):
                self._states.pop(name, None)
        if len(self._states) > MAX_MESSAGES:
            self._states.clear()

    def details(self) -> Mapping[int, Mapping[str, int]]:
        """Return the detailed errors of all interfaces by index.

        Raises:
            OSError: the kernel does not answer, or refuses.
        """
        with refused_as_os_error():
            return dict(statistics(self._route.stats("dump", filter_mask=LINK_64)))

    def addresses(self) -> Mapping[tuple[int, str], int]:
        """Return the number of addresses of interfaces, by index and family.

        Link-local addresses and those of the host itself do not count: by themselves they do not
        reach a peer on another node.

        Raises:
            OSError: as in `details`.
        """
        with refused_as_os_error():
            return usable_addresses(self._route.get_addr())

    def _arrived(self) -> Iterator[bytes]:
        for _ in range(MAX_MESSAGES):
            data = self._next()
            if data is None:
                return
            yield data

    def _next(self) -> bytes | None:
        """Return the next datagram; None if there is none, empty if events were lost."""
        try:
            return self._events.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return b""
            raise


def link_states(messages: Iterable[Any]) -> Iterator[LinkState]:
    """Yield the states in a datagram's link messages; other messages are skipped.

    So are those about ports of bridges, which have a family of their own and no carrier.
    """
    for message in messages:
        name = _name_in(message, "RTM_NEWLINK")
        if name:
            carrier = message.get("IFLA_CARRIER")
            yield LinkState(
                name,
                None if carrier is None else bool(carrier),
                message.get("IFLA_OPERSTATE"),
            )


def links_gone(messages: Iterable[Any]) -> Iterator[str]:
    """Yield the interfaces that do not exist any more according to a datagram's messages."""
    yield from filter(None, (_name_in(message, "RTM_DELLINK") for message in messages))


def _name_in(message: Any, event: str) -> str:
    """Return the interface that an event of this kind is about; empty for any other message."""
    if message.get("event") != event or message["family"] != socket.AF_UNSPEC:
        return ""
    return str(message.get("IFLA_IFNAME") or "")


def statistics(messages: Iterable[Any]) -> Iterator[tuple[int, Mapping[str, int]]]:
    """Yield an interface's index and detailed errors for each statistics message."""
    for message in messages:
        counts = message.get("IFLA_STATS_LINK_64")
        if counts is not None:
            yield message["ifindex"], {name: int(counts[name]) for name in DETAILS}


def usable_addresses(messages: Iterable[Any]) -> Mapping[tuple[int, str], int]:
    """Count addresses of global scope by interface index and family."""
    everywhere = rt_scope["universe"]
    return Counter(
        (int(message["index"]), FAMILIES[message["family"]])
        for message in messages
        if message["scope"] == everywhere and message["family"] in FAMILIES
    )


def _open_events() -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    made = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    made.bind((0, RTMGRP_LINK))
    return made
