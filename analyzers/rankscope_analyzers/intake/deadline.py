"""One deadline for a whole response: name resolution, connecting, TLS, head and body.

A limit on each read does not bound a peer that sends a byte at a time, be it of the status line, of
the headers, of a chunk's size or of an endless series of `100 Continue`. Here each operation on the
socket gets the rest of the whole time, so that it does not matter what a library reads in which
pieces.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

CONNECT_SECONDS = 3.0
"""On the same cluster connecting takes milliseconds. Linux repeats a lost SYN after 1 s and after 3
(TCP_TIMEOUT_INIT, doubled): this allows for one repetition, but does not wait for a dead node."""

Address = tuple[str, int]


class Deadline:
    """The time by which a response has to arrive.

    Args:
        seconds: for the whole response, from now on.
        silence_seconds: for each wait for a byte.
        connect_seconds: for each attempt to connect.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        seconds: float,
        silence_seconds: float | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self.silence_seconds = seconds if silence_seconds is None else silence_seconds
        self.connect_seconds = connect_seconds
        self._clock = clock
        self._began = clock()

    @property
    def passed(self) -> float:
        """Return the seconds since it was set."""
        return self._clock() - self._began

    def missed(self, error: BaseException) -> str:
        """Describe how a server let an operation time out."""
        if self.passed >= self.seconds:
            return f"has not ended its answer in {self.seconds:g} s"
        return f"does not answer in time: {error}"

    def left(self, most: float | None = None) -> float:
        """Return the seconds that the next operation may take.

        Args:
            most: upper limit; default: `silence_seconds`.

        Raises:
            TimeoutError: none are left.
        """
        rest = self.seconds - self.passed
        if rest <= 0:
            raise TimeoutError(f"the answer has not ended in {self.seconds:g} s")
        return min(rest, self.silence_seconds if most is None else most)


class _Timed:
    """The common part of a socket and a TLS socket: each operation ends by the deadline."""

    deadline: Deadline | None = None

    def _set_timeout(self) -> None:
        if self.deadline is not None:
            self.settimeout(self.deadline.left())  # type: ignore[attr-defined]

    def recv(self, *arguments: Any) -> bytes:
        self._set_timeout()
        return super().recv(*arguments)  # type: ignore[misc, no-any-return]

    def recv_into(self, *arguments: Any) -> int:
        self._set_timeout()
        return super().recv_into(*arguments)  # type: ignore[misc, no-any-return]

    def send(self, *arguments: Any) -> int:
        self._set_timeout()
        return super().send(*arguments)  # type: ignore[misc, no-any-return]

    def sendall(self, *arguments: Any) -> None:
        self._set_timeout()
        super().sendall(*arguments)  # type: ignore[misc]


class TimedSocket(_Timed, socket.socket):
    """A socket whose operations end by a deadline."""


class TimedTlsSocket(_Timed, ssl.SSLSocket):
    """The same under TLS, created by a context that has it as its `sslsocket_class`.

    OpenSSL's own loops, of a handshake or of a record, end with the timeout that is set (the
    deadline in Python's _ssl.c).
    """


def connect(address: Address, deadline: Deadline) -> TimedSocket:
    """Return a socket that is connected to the first reachable address of a host.

    Raises:
        OSError: none is reachable; TimeoutError if there was no time for it.
    """
    problem: OSError | None = None
    for family, kind, protocol, _, socket_address in _resolve(address, deadline):
        made = TimedSocket(family, kind, protocol)
        try:
            made.settimeout(deadline.left(deadline.connect_seconds))
            made.connect(socket_address)
        except OSError as error:
            made.close()
            problem = error
        else:
            made.deadline = deadline
            made.settimeout(deadline.left())
            return made
    raise problem or OSError(f"{address[0]} has no address")


def secured(plain: socket.socket, context: ssl.SSLContext, name: str) -> ssl.SSLSocket:
    """Return a connection under TLS with the deadline of the one below it.

    Args:
        plain: the connection, one of `connect`.
        context: one whose `sslsocket_class` is `TimedTlsSocket`.
        name: that the certificate must have.
    """
    deadline = plain.deadline if isinstance(plain, TimedSocket) else None
    if deadline is not None:
        plain.settimeout(deadline.left())
    made = context.wrap_socket(plain, server_hostname=name)
    if isinstance(made, TimedTlsSocket):
        made.deadline = deadline
    return made


def bind(connection: HTTPConnection, deadline: Deadline) -> None:
    """Make a connection of http.client connect, send and read by a deadline."""

    def create(address: Address, *_: Any) -> socket.socket:
        return connect(address, deadline)

    # http.client creates all sockets here, proxies' included, since Python 2.7.
    connection._create_connection = create  # type: ignore[attr-defined]


def _resolve(address: Address, deadline: Deadline) -> list[Any]:
    host, port = address
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return _looked_up(host, port, deadline)


def _looked_up(host: str, port: int, deadline: Deadline) -> list[Any]:
    """Resolve a name in a separate thread: the C library's lookup has no time limit."""
    answer: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answer.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answer.put(error)

    threading.Thread(target=look_up, name="name lookup", daemon=True).start()
    try:
        found = answer.get(timeout=deadline.left())
    except queue.Empty:
        raise TimeoutError(f"the address of {host} was not resolved in time") from None
    if isinstance(found, OSError):
        raise found
    return found
