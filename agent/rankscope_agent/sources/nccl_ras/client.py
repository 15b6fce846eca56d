"""Queries NCCL's RAS for a job's state: one TCP connection, limited in time and size.

The protocol consists of lines of text (src/ras/client_support.cc, version 2). All commands are sent
at once and each is answered by a line; the answer to the last one is the report, after which RAS
closes the connection. An NCCL without `SET FORMAT` (before 2.28.7) answers it with an error and
reports in text.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

MAX_REPLY_BYTES = 2 << 20
"""Largest report accepted: some 5,000 ranks in JSON, which take 20 MB during parsing."""

MAX_HEADER_BYTES = 4096
"""Maximum total length of the answers before the report: three of below 100 bytes each."""

COLLECTION_SHARE = 0.5
"""Share of the available time that RAS may wait for unresponsive processes; the rest is for its
further work, and for sending the report."""

COMMANDS = 3


class RasError(Exception):
    """Something listens there but does not answer like RAS."""


class ReplyTooLargeError(RasError):
    """The report exceeds the size limit."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A report and its format, `json` or `text`."""

    format: str
    text: str


def ask(host: str, port: int, seconds: float, wanted: str) -> Reply:
    """Return the report on the job.

    Args:
        host: where RAS listens.
        port: its port.
        seconds: time limit for everything.
        wanted: `json`, or `text`, which is shorter for large jobs.

    Raises:
        OSError: nothing listens there, or there is no answer in time.
        RasError: the answer is not a report.
    """
    end = time.monotonic() + seconds
    commands = (
        "CLIENT PROTOCOL 2",
        f"TIMEOUT {max(1, round(seconds * COLLECTION_SHARE))}",
        f"SET FORMAT {wanted}",
        "VERBOSE STATUS" if wanted == "json" else "STATUS",
    )
    with socket.create_connection((host, port), seconds) as connection:
        connection.sendall("".join(f"{command}\n" for command in commands).encode())
        received = _receive(connection, end)
    return _reply(received)


def _receive(connection: socket.socket, end: float) -> bytes:
    """Return everything up to the end of the connection."""
    received = bytearray()
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError("its report does not end in time")
        connection.settimeout(left)
        part = connection.recv(64 << 10)
        if not part:
            return bytes(received)
        received += part
        if not received.startswith(b"SERVER PROTOCOL "[: len(received)]):
            raise RasError(f"answers {bytes(received[:40])!r}, unlike RAS")
        if len(received) > MAX_REPLY_BYTES:
            raise ReplyTooLargeError(f"reports more than {MAX_REPLY_BYTES} bytes")


def _reply(received: bytes) -> Reply:
    """Separate the report from the answers to the commands before it."""
    start, answers = 0, []
    for _ in range(COMMANDS):
        end = received.find(b"\n", start, start + MAX_HEADER_BYTES)
        if end < 0:
            raise RasError(f"closes the connection after {len(received)} bytes, before its report")
        answers.append(received[start:end].strip())
        start = end + 1
    text = received[start:].decode(errors="replace")
    if not text.strip():
        raise RasError("closes the connection without a report")
    return Reply("json" if answers[-1] == b"OK" and text.lstrip().startswith("{") else "text", text)
