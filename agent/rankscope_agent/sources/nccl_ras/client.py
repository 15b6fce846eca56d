"""Queries NCCL's RAS for a job's state: one TCP connection, bounded in time and size.

The protocol is lines of text (src/ras/client_support.cc, version 2). All commands are sent at once
and each is answered by a line; the answer to the last is the report, after which RAS hangs up. An
NCCL that does not know `SET FORMAT` (before 2.28.7) answers that with an error and reports in text.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

MAX_REPLY_BYTES = 2 << 20
"""Largest report taken: some 5,000 ranks in JSON, which take 20 MB while they are read."""

MAX_HEADER_BYTES = 4096
"""Longest sum of answers before the report: three of below 100 bytes each."""

COLLECTION_SHARE = 0.5
"""Share of the time given that RAS may wait for processes that do not answer; the rest is for what
it does then, and for sending the report."""

COMMANDS = 3


class RasError(Exception):
    """Something listens there and does not report as RAS does."""


class ReplyTooLargeError(RasError):
    """The report is longer than is taken."""


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
        seconds: time that all of it may take.
        wanted: `json`, or `text` which is shorter for large jobs.

    Raises:
        OSError: nothing listens there, or it does not answer in time.
        RasError: what it answers is no report.
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
            raise TimeoutError("it does not end its report in time")
        connection.settimeout(left)
        part = connection.recv(64 << 10)
        if not part:
            return bytes(received)
        received += part
        if not received.startswith(b"SERVER PROTOCOL "[: len(received)]):
            raise RasError(f"answers {bytes(received[:40])!r}, which RAS does not")
        if len(received) > MAX_REPLY_BYTES:
            raise ReplyTooLargeError(f"reports more than {MAX_REPLY_BYTES} bytes")


def _reply(received: bytes) -> Reply:
    """Part the answers to the commands before from the report."""
    start, answers = 0, []
    for _ in range(COMMANDS):
        end = received.find(b"\n", start, start + MAX_HEADER_BYTES)
        if end < 0:
            raise RasError(f"hangs up after {len(received)} bytes, before its report")
        answers.append(received[start:end].strip())
        start = end + 1
    text = received[start:].decode(errors="replace")
    if not text.strip():
        raise RasError("hangs up without a report")
    return Reply("json" if answers[-1] == b"OK" and text.lstrip().startswith("{") else "text", text)
