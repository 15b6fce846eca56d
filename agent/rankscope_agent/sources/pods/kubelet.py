"""Queries the kubelet over its unix socket for pods' devices: one gRPC call, without gRPC.

gRPC is HTTP/2 with one framed message in each direction
(https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). Each call opens a new connection:
a kubelet that restarts replaces its socket, and calls are seconds apart.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from h2.connection import H2Connection

LIST = "/v1.PodResourcesLister/List"

CALL_SECONDS = 5.0
"""Time limit for one call: the kubelet answers in milliseconds, and the collector's deadline is 10
s."""

MAX_ANSWER = 16 << 20
"""Bytes accepted: gRPC clients accept 4 MiB by default; a node of 110 pods needs 50 kB."""

_CHUNK = 65536
_STATUS_NAMES = {
    "4": "DEADLINE_EXCEEDED",
    "7": "PERMISSION_DENIED",
    "8": "RESOURCE_EXHAUSTED",
    "12": "UNIMPLEMENTED",
    "14": "UNAVAILABLE",
}


class KubeletError(Exception):
    """The kubelet did not answer as expected; the argument says what it did."""


class KubeletClient:
    """Calls one method without arguments on a gRPC server behind a unix socket.

    Args:
        path: the socket.
        seconds: time limit for a whole call.
    """

    def __init__(self, path: Path, seconds: float = CALL_SECONDS) -> None:
        self._path = path
        self._seconds = seconds

    def call(self, method: str = LIST) -> bytes:
        """Return the message in the answer.

        Raises:
            FileNotFoundError: the socket does not exist.
            OSError: it cannot be connected to, or the call takes too long.
            KubeletError: the answer is an error, is too large or is not gRPC.
        """
        deadline = time.monotonic() + self._seconds
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self._seconds)
            try:
                connection.connect(str(self._path))
            except OSError as error:
                error.filename = str(self._path)  # missing from the socket module
                raise
            return _exchange(connection, method, lambda: _left(deadline))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the kubelet's answer takes too long")
    return left


def _exchange(connection: socket.socket, method: str, left: Callable[[], float]) -> bytes:
    # Imported here, by the only thread that needs it: it takes 30 ms and 3 MB.
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.exceptions import ProtocolError

    http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    http.initiate_connection()
    stream = http.get_next_available_stream_id()
    http.send_headers(stream, _request_headers(method))
    http.send_data(stream, b"\0\0\0\0\0", end_stream=True)  # an empty message
    answer = _Answer()
    try:
        while not answer.ended:
            connection.settimeout(left())
            connection.sendall(http.data_to_send())
            data = connection.recv(_CHUNK)
            if not data:
                raise KubeletError("the kubelet closed the connection in the middle of its answer")
            answer.take(http, data)
    except (ProtocolError, UnicodeDecodeError) as error:
        raise KubeletError(f"the answer on the socket is not HTTP/2: {error}") from None
    return answer.message()


def _request_headers(method: str) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]


class _Answer:
    """The part of an answer received so far."""

    def __init__(self) -> None:
        self.ended = False
        self._body = bytearray()
        self._headers: dict[str, str] = {}

    def take(self, http: H2Connection, data: bytes) -> None:
        """Process received bytes.

        Raises:
            KubeletError: the answer is too large, or the server aborted it.
        """
        from h2 import events

        for event in http.receive_data(data):
            if isinstance(event, (events.ResponseReceived, events.TrailersReceived)):
                self._headers.update((str(name), str(value)) for name, value in event.headers)
            elif isinstance(event, events.DataReceived):
                self._body += event.data
                http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, (events.StreamReset, events.ConnectionTerminated)):
                raise KubeletError(f"the kubelet aborted the call (code {event.error_code})")
            elif isinstance(event, events.StreamEnded):
                self.ended = True
        if len(self._body) > MAX_ANSWER:
            raise KubeletError(f"the kubelet's answer is larger than {MAX_ANSWER >> 20} MiB")

    def message(self) -> bytes:
        """Return the only message of a complete answer.

        Raises:
            KubeletError: it is an error, or not a complete message.
        """
        status = self._headers.get("grpc-status")
        if status != "0":
            raise KubeletError(f"the kubelet answers with {self._problem(status)}")
        body = bytes(self._body)
        if len(body) < 5 or body[0] or int.from_bytes(body[1:5], "big") != len(body) - 5:
            raise KubeletError(f"the kubelet's answer of {len(body)} bytes is not a gRPC message")
        return body[5:]

    def _problem(self, status: str | None) -> str:
        if status is None:
            return f"HTTP status {self._headers.get(':status', 'none')} and no gRPC status"
        name = _STATUS_NAMES.get(status, f"gRPC status {status}")
        return f"{name}: {unquote(self._headers.get('grpc-message', ''))[:200]}"
