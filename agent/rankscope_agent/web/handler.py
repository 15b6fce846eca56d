"""Reads the requests of one connection and sends the answers of routes."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import socketserver
import ssl
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

from rankscope_agent.web.access import Guard, Requester
from rankscope_agent.web.connection_slots import MAX_ANSWERS_PER_PEER, Slot, Slots
from rankscope_agent.web.content_coding import GZIP_LEVEL, accepts_gzip
from rankscope_agent.web.request_head import (
    MAX_HEAD_BYTES,
    HeadTooLargeError,
    RequestHeads,
    TlsHeadError,
)
from rankscope_agent.web.routes import TEXT_TYPE, Request, Response, Route, sentence
from rankscope_agent.web.timed_socket import TimedSocket
from rankscope_agent.web.tls import is_certified

log = logging.getLogger(__name__)

MAX_HEAVY = 4
"""Long answers sent at once: each holds a few hundred kB and uses part of one core."""

REQUEST_SECONDS = 30.0
"""A whole request must arrive within this time, or its connection is closed, however slowly it
trickles in; the wait for it counts as well, so that an idle connection outlives the usual scrape
interval of 15 s."""

ANSWER_SECONDS = 120.0
"""A whole answer must be received within this time: for the longest, of some 80 MB, the reader
itself gives up after a minute."""

UNREAD_SECONDS = 1.0
"""How long a rejected request may still arrive. Closing a connection with unread bytes resets it,
and the rejection would be lost."""

MAX_UNREAD_READS = 64  # half a megabyte; whoever sends more does not read the rejection
MAX_QUERY_FIELDS = 16  # no path has more than two
READ_BYTES = 8192
WRITE_BUFFER = 65536


class Site:
    """What all connections of one server share.

    Args:
        routes: every path that is answered.
        guard: decides which requests are answered.
        name: the server's name for itself.
        loopback: whether the server listens on a loopback address.
    """

    def __init__(
        self, routes: Mapping[str, Route], guard: Guard, name: str, *, loopback: bool
    ) -> None:
        self.routes = routes
        self.guard = guard
        self.name = name
        self.loopback = loopback
        self.slots = Slots()
        self.heavy_slots = threading.BoundedSemaphore(MAX_HEAVY)


class Handler(BaseHTTPRequestHandler):
    """Reads requests of one connection and sends the answers of routes."""

    protocol_version = "HTTP/1.1"
    error_content_type = TEXT_TYPE
    error_message_format = "%(message)s\n"

    def __init__(self, slot: Slot, address: Any, server: socketserver.BaseServer, site: Site):
        self._slot = slot
        self._site = site
        super().__init__(slot.connection, address, server)

    def setup(self) -> None:
        """Set deadlines for both directions of the connection."""
        self.connection = self.request
        self._timed = TimedSocket(self.connection)
        self._request_heads = RequestHeads(self._timed)
        self._unread = False
        self.rfile = io.BytesIO()
        # Head and body leave together, and pieces of streams in few packets.
        self.wfile = io.BufferedWriter(self._timed, WRITE_BUFFER)

    def handle_one_request(self) -> None:
        """Wait for a request and answer it, each within its time limit."""
        self.close_connection = True
        self._site.slots.wait(self._slot)
        self._timed.allow(REQUEST_SECONDS)
        try:
            head = self._request_heads.next()
        except HeadTooLargeError:
            self._unread = True
            self._refuse(431, f"The head of a request may have at most {MAX_HEAD_BYTES} bytes.")
            return
        except TlsHeadError:  # any plain text ends the client's wait for a handshake
            self._unread = True
            self._refuse(400, "This address serves plain HTTP, without TLS.")
            return
        if not head or not self._site.slots.answer(self._slot):
            return
        if self._site.slots.over_answer_limit(self._slot):
            self._refuse(503, f"{MAX_ANSWERS_PER_PEER} answers are being sent to this address.")
        else:
            self._timed.allow(ANSWER_SECONDS)
            self.rfile = io.BytesIO(head)
            super().handle_one_request()

    def finish(self) -> None:
        """Send what is left, and receive the rest of a request that was not read."""
        super().finish()
        if not self._unread:
            return
        self._site.slots.wait(self._slot)
        self._timed.allow(UNREAD_SECONDS)
        with contextlib.suppress(OSError):
            # Use the plain socket: an SSLSocket would read no more.
            socket.socket.shutdown(self.connection, socket.SHUT_WR)
            for _ in range(MAX_UNREAD_READS):
                if not self._timed.read(READ_BYTES):
                    break

    def _refuse(self, status: int, text: str) -> None:
        """Answer a request whose head was not examined."""
        self._timed.allow(ANSWER_SECONDS)
        self.command = self.requestline = self.request_version = ""
        self._send(sentence(status, text))

    def do_GET(self) -> None:
        """Answer a request."""
        lengths = set(self.headers.get_all("Content-Length", ()))
        if lengths - {"0"} or "Transfer-Encoding" in self.headers:
            # The body is not read, so what follows on this connection is not a request.
            self.close_connection = self._unread = True
        path, _, query = self.path.partition("?")
        route = self._site.routes.get(path)
        if route is None:
            self._send(sentence(404, f"No such path; have {', '.join(self._site.routes)}."))
        elif refusal := self._site.guard.refusal(route.access, self._requester()):
            self._send(refusal)
        elif not route.heavy:
            self._send(self._answer(route, query))
        elif self._site.heavy_slots.acquire(blocking=False):
            try:
                self._send(self._answer(route, query))
            finally:
                self._site.heavy_slots.release()
        else:
            self._send(sentence(503, f"{MAX_HEAVY} such answers are being sent; try again."))

    def _requester(self) -> Requester:
        """Describe the sender; if there are several Authorization headers, none counts."""
        given = self.headers.get_all("Authorization", ())
        secured = isinstance(self.connection, ssl.SSLSocket)
        return Requester(
            authorization=given[0] if len(given) == 1 else "",
            peer=self._slot.peer,
            certified=secured and is_certified(self.connection),
            loopback=self._site.loopback,
        )

    do_HEAD = do_GET  # noqa: N815 - http.server's name; _send leaves the body out

    def do_POST(self) -> None:
        """Reject methods that change something: nothing here can be changed."""
        self.close_connection = self._unread = True  # the body is not read
        refusal = sentence(405, "Only GET and HEAD are answered here.")
        self._send(replace(refusal, headers=(("Allow", "GET, HEAD"),)))

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST  # noqa: N815 - as above

    def _answer(self, route: Route, query: str) -> Response:
        try:
            fields = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
        except ValueError:
            return sentence(400, f"The query has more than {MAX_QUERY_FIELDS} fields.")
        accept, coding = (
            ",".join(self.headers.get_all(name, ())) for name in ("Accept", "Accept-Encoding")
        )
        try:
            # A sender past the guard may see pages, except on open paths.
            trusted = route.access != "open" or self._site.guard.shows_pages(self._requester())
            return route.answer(Request(fields, accept, coding, trusted))
        except OSError as error:
            log.error("answering %s failed: %s", self.path.partition("?")[0], error)
            return sentence(500, f"Reading the answer's source failed: {error.strerror}.")

    def _send(self, response: Response) -> None:
        body = response.body
        if isinstance(body, bytes):
            self._send_head(response, (("Content-Length", str(len(body))),))
            if self.command != "HEAD":
                self.wfile.write(body)
        else:
            self._stream(response, body)

    def _stream(self, response: Response, pieces: Iterator[bytes]) -> None:
        """Send an answer of unknown length.

        If the pieces end in an error, the connection is closed before the last chunk, so that the
        peer knows that its answer is incomplete.
        """
        gzipped = response.compress and accepts_gzip(self.headers.get("Accept-Encoding", ""))
        chunked = self.request_version == "HTTP/1.1"
        headers: tuple[tuple[str, str], ...] = (("Vary", "Accept-Encoding"),)
        headers += (("Content-Encoding", "gzip"),) if gzipped else ()
        # Before HTTP/1.1 the end of the connection is the end of the answer.
        headers += (("Transfer-Encoding", "chunked"),) if chunked else (("Connection", "close"),)
        self._send_head(response, headers)
        if self.command == "HEAD":
            return
        for piece in _gzipped(pieces) if gzipped else pieces:
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _send_head(self, response: Response, headers: tuple[tuple[str, str], ...]) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        for name, value in response.headers + headers:
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def end_headers(self) -> None:
        """End the head, telling browsers not to guess the type of the body."""
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in self._site.guard.headers():
            self.send_header(name, value)
        super().end_headers()

    def version_string(self) -> str:
        """Return the server's name without the versions of what it is built from."""
        return self._site.name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log requests at debug level only."""
        log.debug("%s %s", self.client_address[0], format % args)


def _gzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(GZIP_LEVEL, wbits=zlib.MAX_WBITS | 16)  # 16 asks for gzip's frame
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()
