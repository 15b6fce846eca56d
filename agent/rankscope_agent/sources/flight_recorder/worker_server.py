"""Fetches the Flight Recorder of one rank from torch's worker server, which is not trusted.

The socket is in a directory that its owner may change at any time. It is opened by a descriptor
that follows no link, and connected to through that same descriptor, so that the socket that was
checked is the one that answers. The duration and the size of an answer are limited.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.flight_dump import MAX_ANSWER_BYTES
from rankscope_agent.sources.flight_recorder.failures import FlightError, Reason

HANDLERS = ("dump_nccl_trace_json", "fr_trace_json")
"""Handlers that dump a Flight Recorder as JSON, NCCL's first; if torch has both, the one of the
backend not in use is empty."""

STACKS = "dump_traceback"
"""Handler that writes the stacks of all threads, for which it acquires the interpreter's lock."""

QUERY = "includecollectives=true&onlyactive=false"
"""Query of NCCL's handler: include collectives, also completed ones. The other takes no query."""

PULL_SECONDS = 2.0
"""A dump of 2,000 entries took 0.14 to 0.19 s on a busy machine, and blocks nothing meanwhile."""

MAX_HEADER_BYTES = 16 << 10
MAX_LIST_BYTES = 64 << 10
_CHUNK = 256 << 10
_CREDENTIALS = struct.Struct("3i")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,12})\r\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Question:
    """The socket to query.

    Args:
        directory: descriptor of the socket's directory.
        name: the socket's name in it.
        owner: user who must own the socket and must run its server; None for any user.
    """

    directory: int
    name: str
    owner: int | None


def fetch(
    directory: int,
    name: str,
    owner: int | None,
    parts: Callable[[bytes], None],
    seconds: float = PULL_SECONDS,
) -> None:
    """Pass each dump of the server behind a socket to `parts`.

    Args:
        directory: descriptor of the socket's directory.
        name: the socket's name in it.
        owner: user who must own the socket and must run its server; None for any user.
        parts: receives each dump.
        seconds: time limit for everything.

    Raises:
        FileNotFoundError: the socket does not exist.
        FlightError: it is unusable, or does not answer like a worker server.
    """
    wanted = [(handler, QUERY) for handler in HANDLERS]
    for body in ask(Question(directory, name, owner), wanted, seconds):
        parts(body)


def ask(question: Question, handlers: Sequence[tuple[str, str]], seconds: float) -> Iterator[bytes]:
    """Yield the answers of the server behind a socket to those of the handlers that it has.

    Args:
        question: the socket to query.
        handlers: their names, each with its query.
        seconds: time limit for everything.

    Raises:
        FileNotFoundError: the socket does not exist.
        FlightError: it is unusable, or does not answer like a worker server.
    """
    deadline, owner = time.monotonic() + seconds, question.owner
    with _Descriptor(question.directory, question.name) as path_fd:
        _check_socket(path_fd, owner)
        listed = _handlers(_ask(path_fd, "GET /handler/", MAX_LIST_BYTES, owner, deadline))
        for handler, query in handlers:
            if handler in listed:
                order = f"POST /handler/{handler}?{query}"
                yield _ask(path_fd, order, MAX_ANSWER_BYTES, owner, deadline)


def _handlers(body: bytes) -> frozenset[str]:
    """Return the names of the handlers that a worker server lists.

    Raises:
        FlightError: it lists none.
    """
    try:
        names = untrusted_json.read(body)
    except ValueError as error:
        raise FlightError("malformed", f"not JSON: {error}") from error
    if not isinstance(names, list):
        raise FlightError("malformed", "handlers are not a list")
    return frozenset(name for name in names if isinstance(name, str))


class _Descriptor:
    """A descriptor of a directory entry itself, of whatever type, which cannot be read from."""

    def __init__(self, directory: int, name: str) -> None:
        self._directory = directory
        self._name = name
        self._descriptor = -1

    def __enter__(self) -> int:
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._name, flags, dir_fd=self._directory)
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _check_socket(path_fd: int, owner: int | None) -> None:
    """Reject anything that is not a socket, or not the owner's own.

    Raises:
        FlightError: it is rejected.
    """
    status = os.fstat(path_fd)
    if stat.S_ISLNK(status.st_mode):
        raise FlightError("symlink", "is a symbolic link, which is not followed")
    if not stat.S_ISSOCK(status.st_mode):
        raise FlightError("not_socket", "is not a socket")
    if status.st_nlink != 1:
        raise FlightError("not_socket", f"has {status.st_nlink} names; another may be the real one")
    if owner is not None and status.st_uid != owner:
        raise FlightError("owner", f"belongs to user {status.st_uid}, its ring to {owner}")


def _ask(path_fd: int, order: str, limit: int, owner: int | None, deadline: float) -> bytes:
    """Send one request over a separate connection and return the body of its answer.

    Raises:
        FlightError: no complete answer of at most `limit` bytes arrived before the deadline.
    """
    request = (
        f"{order} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        try:
            _wait_no_longer(connection, deadline)
            connection.connect(f"/proc/self/fd/{path_fd}")
            _check_peer(connection, owner)
            connection.sendall(request.encode())
            return _body(connection, limit, deadline)
        except TimeoutError as error:
            raise FlightError("timeout", "does not answer in time") from error
        except PermissionError as error:
            raise FlightError("permission", "refuses connections from the agent") from error
        except OSError as error:
            # A full backlog on a non-blocking connect: the server does not accept.
            reason: Reason = "timeout" if error.errno == errno.EAGAIN else "refused"
            raise FlightError(reason, f"cannot be queried: {error.strerror}") from error


def _wait_no_longer(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


def _check_peer(connection: socket.socket, owner: int | None) -> None:
    if owner is None:
        return
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user = _CREDENTIALS.unpack(raw)[1]
    if user != owner:
        raise FlightError("owner", f"is served by user {user}, its ring belongs to {owner}")


def _body(connection: socket.socket, limit: int, deadline: float) -> bytes:
    received, header = bytearray(), -1
    while header < 0:
        if len(received) > MAX_HEADER_BYTES:
            raise FlightError("http", f"no end of a header in {len(received)} bytes")
        _receive(connection, received, 4096, deadline)
        header = received.find(b"\r\n\r\n")
    length = _length(bytes(received[: header + 2]), limit)
    body = received[header + 4 :]
    while len(body) < length:
        _receive(connection, body, min(_CHUNK, length - len(body)), deadline)
    return bytes(body[:length])


def _receive(connection: socket.socket, received: bytearray, most: int, deadline: float) -> None:
    _wait_no_longer(connection, deadline)
    piece = connection.recv(most)
    if not piece:
        raise FlightError("http", f"ends after {len(received)} bytes")
    received += piece


def _length(header: bytes, limit: int) -> int:
    """Return the length in the header of an answer.

    Raises:
        FlightError: the answer is malformed, reports a failure, or is longer than `limit`.
    """
    status, length = _STATUS.match(header), _LENGTH.search(header)
    if status is None or length is None:
        raise FlightError("http", f"expected an answer with a length, got {header[:60]!r}")
    if status[1] != b"200":
        raise FlightError("http", f"answers with status {status[1].decode()}")
    if int(length[1]) > limit:
        raise FlightError("too_large", f"{int(length[1])} bytes, at most {limit} are read")
    return int(length[1])
