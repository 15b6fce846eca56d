"""Creates the listening socket: address family and address."""

from __future__ import annotations

import errno
import socket
from typing import Any

from rankscope_agent.contract.address import ListenAddress

BACKLOG = 128
"""Connections that wait to be accepted. The standard library's 5 loses connections, each for a
second, as soon as a few scrapers connect at once."""

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Failures of accept() that leave the connection in the queue, so that it is ready again at once: a
server that does not pause would use a whole core until a descriptor is free."""

PAUSE_SECONDS = 0.05


def resolve(listen: ListenAddress) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Return the family and address to bind; an empty host means all addresses of both families.

    Raises:
        OSError: the host has no address.
    """
    if not listen.host:
        if _ipv6_works():
            return socket.AF_INET6, ("::", listen.port)
        return socket.AF_INET, ("", listen.port)
    flags = socket.AI_PASSIVE
    found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=flags)
    return found[0][0], found[0][4]


def listening_socket(listen: ListenAddress) -> socket.socket:
    """Return a non-blocking listening socket.

    Raises:
        OSError: listening on the address fails.
    """
    family, address = resolve(listen)
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def url_of(address: tuple[Any, ...], scheme: str = "http") -> str:
    """Return a socket's own address as a URL."""
    host = f"[{address[0]}]" if ":" in str(address[0]) else address[0]
    return f"{scheme}://{host}:{address[1]}"


def _ipv6_works() -> bool:
    """Return True if a socket can listen on IPv6, which may be compiled in but switched off."""
    if not socket.has_dualstack_ipv6():
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True
