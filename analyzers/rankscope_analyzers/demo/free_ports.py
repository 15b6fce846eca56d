"""Ports for servers and jobs that are started on this machine.

Binding port 0 would give one of those that the kernel gives to connections, too: any of them may
take it before a slow program listens on it.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence

PORTS = range(20_000, 32_768)
"""Below net.ipv4.ip_local_port_range, 32768 to 60999 by default, and above most services."""

ATTEMPTS = 100
"""Ports tried: one is enough unless most of them are taken."""


def free_port(ports: Sequence[int] = PORTS) -> int:
    """Return a port that nobody listened on a moment ago.

    Raises:
        OSError: none was free.
    """
    for _ in range(ATTEMPTS):
        port = random.SystemRandom().choice(ports)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("", port))
            return port
    raise OSError(f"no free port found from {ports[0]} to {ports[-1]}")
