"""A proxy before an agent that can cut a response half-way and end the agent at that moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

PIECE = 65_536
LEAST_ANSWER = 300
"""Bytes: a head, and the beginning of a body."""


class CuttingProxy:
    """Listens on loopback, and forwards to an agent.

    Args:
        agent: port that the agent listens on.
    """

    def __init__(self, agent: int) -> None:
        self._agent = agent
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Return the port that it listens on."""
        return int(self._listener.getsockname()[1])

    def cut_next(self, end: Callable[[], None]) -> None:
        """Cut the next response half-way, and end the agent by a function at that moment."""
        with self._lock:
            self._end = end

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                reader, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(reader,), daemon=True).start()

    def _serve(self, reader: socket.socket) -> None:
        with reader, contextlib.suppress(OSError):
            agent = socket.create_connection(("127.0.0.1", self._agent))
            threading.Thread(target=_pass_on, args=(reader, agent), daemon=True).start()
            with agent:
                while piece := agent.recv(PIECE):
                    if self._is_cut(piece):
                        reader.sendall(piece[: len(piece) // 2])
                        return
                    reader.sendall(piece)

    def _is_cut(self, piece: bytes) -> bool:
        with self._lock:
            if self._end is None or len(piece) < LEAST_ANSWER:
                return False
            end, self._end = self._end, None
            self.cuts += 1
        end()
        return True


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
