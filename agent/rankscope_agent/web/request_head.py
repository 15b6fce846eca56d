"""Reads request heads (request line and headers) in bounded memory.

This limit precedes everything that examines a request: the standard library would keep 100 lines of
64 KiB, some of them in three copies, before it checks credentials.
"""

from __future__ import annotations

import io
import re

MAX_HEAD_BYTES = 16384
"""Largest head accepted, including request line, headers and the empty line: Prometheus, kubelets
and browsers send less than 2 KiB, including a token or a password; nginx and Go's servers accept 32
KiB and 1 MiB."""

READ_BYTES = 4096  # most heads arrive in one packet

_END = re.compile(rb"\A\r?\n|\n\r?\n")
"""The empty line, with the bare line feeds that http.server accepts as line ends as well."""

_END_BEGUN = len(b"\n\r")
"""Bytes of an end that may have been examined before its last one arrived."""


def end_of_head(received: bytes | bytearray, start: int) -> int | None:
    """Return where the first head ends; None if it is incomplete.

    Args:
        received: the bytes received so far.
        start: how many of them were examined before.
    """
    found = _END.search(received, max(0, start - _END_BEGUN))
    return None if found is None else found.end()


TLS_HANDSHAKE = 0x16
"""The first byte of a TLS connection (RFC 8446, section 5.1), and of no HTTP request."""


class TlsHeadError(Exception):
    """A client begins TLS on a connection without it."""


class HeadTooLargeError(Exception):
    """A head has not ended within `MAX_HEAD_BYTES`."""


class RequestHeads:
    """The heads received on one connection, one after another.

    What follows a head is kept for the next one. It is never a body: a connection whose request has
    one is closed.
    """

    def __init__(self, stream: io.RawIOBase) -> None:
        self._stream = stream
        self._received = bytearray()

    def next(self) -> bytes:
        """Return the next head with its empty line; empty once the peer has closed.

        An incomplete head at the end counts as nothing.

        Raises:
            HeadTooLargeError: no empty line ended it within the limit.
            TlsHeadError: it begins with a TLS handshake.
            OSError: the connection broke; TimeoutError past its deadline.
        """
        looked_at = 0
        while True:
            if self._received[:1] == bytes((TLS_HANDSHAKE,)):
                raise TlsHeadError
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
