"""Ports for servers and jobs that tests start."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """Give a port that nobody listened on a moment ago.

    It is below those that Linux gives to connections (32768 and up), which other tests make all the
    time, so that none takes it before it is listened on.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_768)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("", port))
            return port
