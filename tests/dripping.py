"""A server that never ends its answer, wherever it begins to drip."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping

PAUSE_SECONDS = 0.02

Answer = Callable[[], Iterator[bytes]]


def dripping(head: bytes, drop: bytes) -> Answer:
    """Return an answer that begins with `head`; after that comes `drop`, a byte at a time."""

    def answer() -> Iterator[bytes]:
        yield head
        for byte in itertools.cycle(drop):
            yield bytes((byte,))

    return answer


DRIPS: Mapping[str, Answer] = {
    "status line": dripping(b"HTTP/1.1 2", b"0"),
    "headers": dripping(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
    "many headers": dripping(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
    "a row of 100 Continue": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a chunk's size": dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "chunks": dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "body": dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b" "),
    "body without an end": dripping(b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    "error body": dripping(b"HTTP/1.1 503 No\r\nContent-Length: 99999\r\n\r\n", b" "),
    "chunked error body": dripping(b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
}
"""Where an answer can drip, by name."""


class Dripping:
    """Accepts connections on loopback and answers each in the same way until the test ends.

    Args:
        answer: gives the bytes; the pause is before each.
        tls: secures connections, None for none.
    """

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self._answer, self._tls = answer, tls
        self._ended = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._socket.getsockname()[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.connections = 0
        self._threads = [threading.Thread(target=self._serve)]

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            talk = threading.Thread(target=self._talk, args=(connection,))
            self._threads.append(talk)
            talk.start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            try:
                peer = (
                    self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
                )
                with peer:
                    peer.recv(65536)
                    for piece in self._answer():
                        if self._ended.wait(PAUSE_SECONDS):
                            return
                        peer.sendall(piece)
                    self._ended.wait()
            except OSError:
                return

    def _secured(self, connection: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(connection, server_side=True) if self._tls else connection

    def __enter__(self) -> Dripping:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join()
