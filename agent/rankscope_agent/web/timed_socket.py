"""A socket with a deadline that applies however slowly the peer sends or reads."""

from __future__ import annotations

import io
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class TimedSocket(io.RawIOBase):
    """Both directions of a socket as a raw stream that raises TimeoutError after its deadline.

    The timeout of a socket applies to each byte: a peer that sends one every 29 seconds would hold
    its slot for hours.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = time.monotonic()

    def allow(self, seconds: float) -> None:
        """Set a new deadline, counted from now."""
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        """Return True, because peers send."""
        return True

    def writable(self) -> bool:
        """Return True, because peers receive."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read what is available.

        Raises:
            TimeoutError: nothing arrived before the deadline.
        """
        self._wind()
        return self._connection.recv_into(buffer)

    def write(self, data: ReadableBuffer) -> int:
        """Send all of it.

        Raises:
            TimeoutError: not everything was received before the deadline.
        """
        self._wind()
        with memoryview(data) as view:
            self._connection.sendall(view)
            return view.nbytes

    def _wind(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the peer exceeded its time limit")
        self._connection.settimeout(left)
