"""Rejects connections without waiting for the peer."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque

KEPT_SECONDS = 0.5
"""How long a rejected connection stays open. Closing one with unread bytes resets it, and the
rejection would be lost; by then it has been read, and the request has arrived."""

MAX_KEPT = 32
READ_BYTES = 65536

_TEXT = b"Too many connections are open; try again in a moment.\n"
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Retry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
) % (len(_TEXT), _TEXT)


class Refusals:
    """Rejected connections; used only by the accepting thread."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, socket.socket]] = deque()

    def add(self, connection: socket.socket) -> None:
        """Tell a peer that there is no free slot."""
        connection.setblocking(False)
        try:
            connection.send(REFUSAL)  # a new connection's buffer has room for it
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            connection.close()
            return
        self._kept.append((time.monotonic(), connection))
        if len(self._kept) > MAX_KEPT:
            self._close_oldest()

    def sweep(self) -> None:
        """Close the connections whose peers have had time to read."""
        while self._kept and time.monotonic() - self._kept[0][0] >= KEPT_SECONDS:
            self._close_oldest()

    def close(self) -> None:
        """Close all of them."""
        while self._kept:
            self._close_oldest()

    def _close_oldest(self) -> None:
        _, connection = self._kept.popleft()
        with connection, contextlib.suppress(OSError):
            connection.recv(READ_BYTES)
