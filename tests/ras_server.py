"""A server that speaks RAS's protocol, or breaks it as a test wants."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def rank_entry(rank: int, **counts: int) -> dict[str, Any]:
    """Return a rank that answered, as NCCL 2.28 writes it."""
    status = {
        "init_state": 0,
        "async_error": 0,
        "finalize_called": False,
        "destroy_flag": False,
        "abort_flag": False,
    }
    place = {"host": f"node{rank // 8}", "pid": 4000 + rank, "cuda_dev": rank % 8}
    return {"rank": rank, **place, "status": status, "collective_counts": counts}


def missing_entry(rank: int, *, dead: bool = False) -> dict[str, Any]:
    """Return a rank that did not answer."""
    status = {"unresponsive": True, "considered_dead": dead}
    return {"rank": rank, "host": f"node{rank // 8}", "pid": 4000 + rank, "status": status}


def communicator(size: int, ranks: list[Any], missing: list[Any]) -> dict[str, Any]:
    """Return a communicator of these ranks."""
    return {
        "hash": "0x27a079b828ff1a75",
        "size": size,
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": ranks,
        "missing_ranks": missing,
    }


def json_report(*communicators: dict[str, Any], timeouts: int = 0) -> str:
    """Return a report in JSON."""
    report = {
        "nccl_version": "2.28.9",
        "communicators_count": len(communicators),
        "communicators": list(communicators),
        "ras": {"collection_time_sec": 0.002, "timeouts_count": timeouts},
    }
    return json.dumps(report, indent=2)


class RasServer:
    """RAS on a free port of localhost.

    Args:
        json_text: its report in JSON; None for an NCCL that has none.
        text: its report in text.
        hello: the answer to `CLIENT PROTOCOL`.
        hang_up: whether it ends the connection after its report.
    """

    def __init__(
        self,
        json_text: str | None = None,
        text: str = "",
        hello: str = "SERVER PROTOCOL 2",
        *,
        hang_up: bool = True,
    ) -> None:
        self.json_text, self.text, self.hello, self.hang_up = json_text, text, hello, hang_up
        self.questions: list[str] = []
        self._done = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> RasServer:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._done.set()
        with socket.create_connection(("127.0.0.1", self.port)):
            self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                if self._done.is_set():
                    return
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        in_json = False
        try:
            for command in _commands(connection):
                self.questions.append(command)
                if command.startswith("CLIENT PROTOCOL"):
                    answer = f"{self.hello}\n"
                elif command == "SET FORMAT json" and self.json_text is None:
                    answer = f"ERROR: Unknown command {command}\n"
                elif command.endswith("STATUS"):
                    answer = self.json_text if in_json and self.json_text is not None else self.text
                    connection.sendall(answer.encode(errors="surrogateescape"))
                    break
                else:
                    in_json = in_json or command == "SET FORMAT json"
                    answer = "OK\n"
                connection.sendall(answer.encode())
            if not self.hang_up:
                self._done.wait(20)
        except OSError:
            return  # the client has left


def _commands(connection: socket.socket) -> Iterator[str]:
    received = b""
    while part := connection.recv(4096):
        received += part
        *lines, received = received.split(b"\n")
        yield from (line.decode() for line in lines)


@contextmanager
def closed_port() -> Iterator[int]:
    """Give a port on which nobody listens, kept from others meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
