"""Liveness on a separate port and thread.

For the kubelet's liveness probes, which restart an agent that does not answer: whatever happens to
the main server, this one reads a short head, sends one of a few fixed answers, and waits for no
one. It reveals nothing about the node, requires no credentials, and has no TLS.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.web.connection_slots import Slot, Slots
from rankscope_agent.web.listening import EXHAUSTED, PAUSE_SECONDS, listening_socket, url_of
from rankscope_agent.web.request_head import end_of_head

PATH = "/healthz"

MAX_HEAD_BYTES = 1024  # the kubelet's have some 150

CONNECTION_SECONDS = 5.0
"""A connection is closed after this time, answered or not: kubelets send their request at once, and
give up after a second by default."""

LOOK_SECONDS = 0.5  # how often expired connections are looked for

MAX_ACCEPTED = 16  # accepted in a row, before open connections get their turn
MAX_READS = 16  # per connection; a genuine one needs two


def _fixed(status: HTTPStatus, text: str) -> tuple[bytes, bytes]:
    """Return the head and body of an answer."""
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", "Content-Type: text/plain; charset=utf-8"]
    lines += ["Connection: close", f"Content-Length: {len(text) + 1}", "", ""]
    return "\r\n".join(lines).encode(), f"{text}\n".encode()


_ANSWERS: Mapping[HTTPStatus, tuple[bytes, bytes]] = {
    status: _fixed(status, text)
    for status, text in (
        (HTTPStatus.OK, "The agent is alive."),
        (HTTPStatus.SERVICE_UNAVAILABLE, "A thread has ended; only a restart brings it back."),
        (HTTPStatus.NOT_FOUND, f"Only {PATH} is answered here."),
        (HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are answered here."),
        (
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"The head of a request may have at most {MAX_HEAD_BYTES} bytes here.",
        ),
    )
}


@dataclass(slots=True, eq=False)
class _Exchange:
    """A connection: its slot, the part of its head received so far, and its deadline."""

    slot: Slot
    until: float
    head: bytes = b""
    reads: int = 0
    answered: bool = False


class HealthServer:
    """Answers `PATH` within a `with` block.

    Args:
        listen: the address to listen on.
        alive: returns whether the agent is healthy; it is called often and must not wait.

    Raises:
        OSError: listening on the address fails.
    """

    def __init__(self, listen: ListenAddress, alive: Callable[[], bool]) -> None:
        self._alive = alive
        self._listening = listening_socket(listen)
        self.port = int(self._listening.getsockname()[1])
        self.url = url_of(self._listening.getsockname())
        self._slots = Slots()
        self._exchanges: dict[socket.socket, _Exchange] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def __enter__(self) -> HealthServer:
        """Start answering."""
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop answering."""
        self._stop.set()
        self._thread.join(2 * LOOK_SECONDS)
        self._listening.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listening, selectors.EVENT_READ)
            while not self._stop.is_set():
                ready = [key.data for key, _ in selector.select(LOOK_SECONDS)]
                for exchange in filter(None, ready):
                    self._read(selector, exchange)
                if None in ready:  # last, so that no waiting caller makes room for a newcomer
                    self._accept(selector)
                self._end_late_ones(selector)
            for exchange in list(self._exchanges.values()):
                self._end(selector, exchange)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        for _ in range(MAX_ACCEPTED):
            try:
                connection, address = self._listening.accept()
            except OSError as error:  # usually the peer is gone
                if error.errno in EXHAUSTED:
                    self._slots.evict_one()
                    self._stop.wait(PAUSE_SECONDS)
                return
            self._admit(selector, connection, str(address[0]))

    def _admit(
        self, selector: selectors.BaseSelector, connection: socket.socket, peer: str
    ) -> None:
        slot = self._slots.acquire(peer, connection)
        if slot is None:
            connection.close()
            return
        connection.setblocking(False)
        exchange = _Exchange(slot, time.monotonic() + CONNECTION_SECONDS)
        self._exchanges[connection] = exchange
        selector.register(connection, selectors.EVENT_READ, exchange)

    def _read(self, selector: selectors.BaseSelector, exchange: _Exchange) -> None:
        """Receive what has arrived; after the answer too, so that no reset overtakes it."""
        try:
            more = exchange.slot.connection.recv(MAX_HEAD_BYTES - len(exchange.head))
        except OSError:
            more = b""
        exchange.reads += 1
        if not more or (exchange.answered and exchange.reads > MAX_READS):
            self._end(selector, exchange)
        elif not exchange.answered:
            exchange.head += more
            status = self._status(exchange.head)
            if status is not None:
                self._send(exchange, status)

    def _status(self, head: bytes) -> HTTPStatus | None:
        """Return the status for a head; None as long as it is incomplete."""
        if end_of_head(head, 0) is None:
            too_large = len(head) >= MAX_HEAD_BYTES
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if too_large else None
        method, path, *_ = [*head.split(maxsplit=2), b"", b""]
        if method not in {b"GET", b"HEAD"}:
            return HTTPStatus.METHOD_NOT_ALLOWED
        if path.partition(b"?")[0] != PATH.encode():
            return HTTPStatus.NOT_FOUND
        return HTTPStatus.OK if self._alive() else HTTPStatus.SERVICE_UNAVAILABLE

    def _send(self, exchange: _Exchange, status: HTTPStatus) -> None:
        head, body = _ANSWERS[status]
        bare = exchange.head.startswith(b"HEAD ")
        exchange.answered = True
        exchange.head = b""
        with contextlib.suppress(OSError):  # it is gone, as its next event shows
            exchange.slot.connection.send(head if bare else head + body)
            exchange.slot.connection.shutdown(socket.SHUT_WR)

    def _end_late_ones(self, selector: selectors.BaseSelector) -> None:
        now = time.monotonic()
        for exchange in [one for one in self._exchanges.values() if one.until <= now]:
            self._end(selector, exchange)

    def _end(self, selector: selectors.BaseSelector, exchange: _Exchange) -> None:
        connection = exchange.slot.connection
        del self._exchanges[connection]
        self._slots.release(exchange.slot)
        selector.unregister(connection)
        connection.close()
