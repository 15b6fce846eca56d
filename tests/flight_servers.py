"""Servers on unix sockets that answer as torch's worker server does, or as it never would."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Answer = Callable[[socket.socket, bytes], None]


def entry(number: int, time_ns: int, **changed: Any) -> dict[str, Any]:
    """Give one entry of a dump, as torch 2.13 writes those of gloo."""
    return {
        "collective_seq_id": number,
        "input_dtypes": ["Float"],
        "input_sizes": [[3]],
        "is_p2p": False,
        "op_id": number,
        "output_dtypes": ["Float"],
        "output_sizes": [[3]],
        "p2p_seq_id": 0,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "record_id": number - 1,
        "retired": True,
        "state": "scheduled",
        "time_created_ns": time_ns,
        "time_discovered_completed_ns": 0,
        "time_discovered_started_ns": 0,
        "timeout_ms": 1800000,
        **changed,
    }


def dump(*entries: dict[str, Any], version: str = "2.10") -> bytes:
    """Give a dump with these entries."""
    return json.dumps({"version": version, "entries": entries, "pg_status": {}}).encode()


def answer_with(body: bytes, status: str = "200 OK") -> bytes:
    """Give a whole answer of HTTP."""
    head = f"HTTP/1.1 {status}\r\nKeep-Alive: timeout=1\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n\r\n" + body


def recorder(body: bytes, handler: str = "fr_trace_json") -> Answer:
    """Answer as a worker server does whose recorder has this dump."""

    def answer(connection: socket.socket, request: bytes) -> None:
        if request.startswith(b"GET /handler/ HTTP/1.1\r\n"):
            connection.sendall(answer_with(json.dumps(["ping", handler]).encode()))
        elif request.startswith(f"POST /handler/{handler}?".encode()):
            connection.sendall(answer_with(body))
        else:
            connection.sendall(answer_with(b"", "404 Not Found"))

    return answer


@contextlib.contextmanager
def serving(path: Path, answer: Answer) -> Iterator[list[bytes]]:
    """Serve on a socket until the block ends; give the requests that came."""
    requests: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.settimeout(20.0)
                        requests.append(connection.recv(4096))
                        answer(connection, requests[-1])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(30.0)
            path.unlink(missing_ok=True)
