"""Reads request heads (request line and headers) in bounded memory.

The bound stands in front of everything that looks at a request: the standard library would keep
100 lines of 64 KiB, some of them three times over, before it asks who is there.
"""

from __future__ import annotations

import io
import re

MAX_HEAD_BYTES = 16384
"""Largest head taken, request line, headers and the empty line included: Prometheus, kubelets and
browsers send less than 2 KiB, a token or a password among it; nginx and Go's servers take 32 KiB
and 1 MiB."""

READ_BYTES = 4096  # most heads come in one packet

_END = re.compile(rb"\A\r?\n|\n\r?\n")
"""The empty line, with the bare line feeds that http.server takes for ends of lines as well."""

_LONGEST_END = 3


def end_of_head(received: bytes | bytearray, start: int) -> int | None:
    """Return where the first head ends, None as long as it does not.

    Args:
        received: what has come.
        start: how much of it was looked at before.
    """
    found = _END.search(received, max(0, start - _LONGEST_END))
    return None if found is None else found.end()


class HeadTooLargeError(Exception):
    """A head has not ended within `MAX_HEAD_BYTES`."""


class RequestHeads:
    """The heads that one connection sends, one after another.

    What follows a head stays here for the next one. It is never a body: a connection whose request
    has one is closed.
    """

    def __init__(self, stream: io.RawIOBase) -> None:
        self._stream = stream
        self._received = bytearray()

    def next(self) -> bytes:
        """Return the next head with its empty line; nothing once the peer has ended.

        A head that the peer left in the middle counts as nothing.

        Raises:
            HeadTooLargeError: no empty line came in time to end it.
            OSError: the connection broke; TimeoutError past its deadline.
        """
        looked_at = 0
        while True:
            end = end_of_head(self._received, looked_at)
            if end is not None:
                return self._taken(end)
            looked_at = len(self._received)
            if looked_at >= MAX_HEAD_BYTES:
                raise HeadTooLargeError
            more = self._stream.read(min(READ_BYTES, MAX_HEAD_BYTES - looked_at))
            if not more:
                return b""
            self._received += more

    def _taken(self, size: int) -> bytes:
        head = bytes(self._received[:size])
        del self._received[:size]
        return head
