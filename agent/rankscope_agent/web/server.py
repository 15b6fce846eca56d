"""The HTTP server: connections, limits and transfer; what is answered comes from the routes."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import socketserver
import ssl
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from rankscope_agent.web.access import Guard
from rankscope_agent.web.address import ListenAddress, is_loopback
from rankscope_agent.web.coding import GZIP_LEVEL, accepts_gzip
from rankscope_agent.web.routes import TEXT_TYPE, Request, Response, Route, sentence
from rankscope_agent.web.timed import TimedSocket
from rankscope_agent.web.tls import is_certified

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
"""Connections served at once, each by a thread: some twenty scrapers, probes and people are the
most that a node's agent meets, and 64 threads cost less than 10 MB."""

MAX_HEAVY = 4
"""Long answers sent at once: each holds a few hundred kB and takes a share of one core."""

MAX_PER_PEER = 32
"""Connections of one address: half of all, so that one pod that opens as many as it can leaves
places for the scraper."""

REQUEST_SECONDS = 30.0
"""A whole request has come by then, or its connection is closed, however slowly it drips; the wait
for it counts as well, so that an idle connection outlives the usual scrape interval of 15 s."""

ANSWER_SECONDS = 120.0
"""A whole answer is taken by then: the longest, of some 80 MB, is given up by its own reader after
a minute."""

HANDSHAKE_SECONDS = 10.0  # TLS takes two round trips; what takes longer holds a place for nothing

REFUSAL_TIMEOUT_SECONDS = 0.05  # the accepting thread waits no longer for a peer it turns away
MAX_QUERY_FIELDS = 16  # no path takes more than two
READ_BUFFER, WRITE_BUFFER = 8192, 65536

_TOO_MANY = b"Too many connections are open; try again in a moment.\n"
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Retry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
) % (len(_TOO_MANY), _TOO_MANY)


class WebServer(ThreadingHTTPServer):
    """A threading server with bounded connections that listens on IPv6 and IPv4 at once.

    Args:
        listen: where.
        routes: every path that is answered.
        guard: who is answered.
        name: what the server calls itself.

    Raises:
        OSError: the address cannot be listened on.
    """

    # The standard library's backlog of 5 loses connections, and with them a second each, as soon
    # as a few scrapers come at once (of 640 scrapes by 32 clients 195 took more than 0.9 s).
    request_queue_size = 128
    daemon_threads = True

    def __init__(
        self,
        listen: ListenAddress,
        routes: Mapping[str, Route],
        guard: Guard,
        name: str = "rankscope-agent",
    ) -> None:
        self.routes = routes
        self.guard = guard
        self.name = name
        self.heavy_slots = threading.BoundedSemaphore(MAX_HEAVY)
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._peers: Counter[str] = Counter()
        self._peers_lock = threading.Lock()
        self.address_family, address = _resolve(listen)
        super().__init__(address, _Handler)
        self.loopback = is_loopback(str(self.server_address[0]))

    @property
    def url(self) -> str:
        """The address really listened on."""
        host, port = str(self.server_address[0]), self.server_address[1]
        scheme = "https" if self.guard.secure else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def server_bind(self) -> None:
        """Bind without the reverse name lookup of http.server, which can take seconds."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or turn it away when there are too many."""
        peer = str(client_address[0])
        if not self._enter(peer):
            _refuse(request, readable=not self.guard.secure)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started, so none will give the place back
            self._leave(peer)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Secure a connection if that is asked for, serve it and give its place back."""
        try:
            secured = self._secured(request, client_address)
            if secured is None:
                self.shutdown_request(request)
            else:
                super().process_request_thread(secured, client_address)
        finally:
            self._leave(str(client_address[0]))

    def _enter(self, peer: str) -> bool:
        """Take a place for a connection, if there is one."""
        with self._peers_lock:
            if self._peers[peer] >= MAX_PER_PEER or not self._connections.acquire(blocking=False):
                return False
            self._peers[peer] += 1
            return True

    def _leave(self, peer: str) -> None:
        with self._peers_lock:
            self._peers[peer] -= 1
            if self._peers[peer] <= 0:
                del self._peers[peer]
            self._connections.release()

    def _secured(self, request: socket.socket, client_address: Any) -> socket.socket | None:
        """Shake hands; None if that fails, or if the client's certificate is not one of ours."""
        context = self.guard.context()
        if context is None:
            return request
        request.settimeout(HANDSHAKE_SECONDS)
        try:
            secured = context.wrap_socket(request, server_side=True)
        except OSError as error:  # SSLError among them
            log.debug("TLS with %s failed: %s", client_address, error)
            return None
        if self.guard.admits(secured):
            return secured
        log.debug("the certificate of %s is not one of client_allowed_sans", client_address)
        self.shutdown_request(secured)
        return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what ended a connection; peers that went away are nothing to worry about."""
        error = sys.exc_info()[1]
        if isinstance(error, ConnectionError | TimeoutError | ssl.SSLError):
            log.debug("connection from %s ended: %s", client_address, error)
        else:
            log.error("answering %s failed", client_address, exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    """Reads requests of one connection and sends the routes' answers."""

    server: WebServer
    protocol_version = "HTTP/1.1"
    error_content_type = TEXT_TYPE
    error_message_format = "%(message)s\n"

    def setup(self) -> None:
        """Put a clock on both directions of the connection."""
        self.connection = self.request
        self._timed = TimedSocket(self.connection)
        self.rfile = io.BufferedReader(self._timed, READ_BUFFER)
        # Head and body leave together, and pieces of streams in few packets.
        self.wfile = io.BufferedWriter(self._timed, WRITE_BUFFER)

    def handle_one_request(self) -> None:
        """Wait for a request and answer it, each within its time."""
        self._timed.allow(REQUEST_SECONDS)
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answer a request."""
        self._timed.allow(ANSWER_SECONDS)
        lengths = set(self.headers.get_all("Content-Length", ()))
        if lengths - {"0"} or "Transfer-Encoding" in self.headers:
            # The body is not read, so what follows on this connection is no request.
            self.close_connection = True
        path, _, query = self.path.partition("?")
        route = self.server.routes.get(path)
        if route is None:
            self._send(sentence(404, f"No such path; have {', '.join(self.server.routes)}."))
        elif refusal := self._refusal(route):
            self._send(refusal)
        elif not route.heavy:
            self._send(self._answer(route, query))
        elif self.server.heavy_slots.acquire(blocking=False):
            try:
                self._send(self._answer(route, query))
            finally:
                self.server.heavy_slots.release()
        else:
            self._send(sentence(503, f"{MAX_HEAVY} such answers are being sent; try again."))

    def _refusal(self, route: Route) -> Response | None:
        """Ask the guard; of several Authorization headers none counts."""
        given = self.headers.get_all("Authorization", ())
        secured = isinstance(self.connection, ssl.SSLSocket)
        return self.server.guard.refusal(
            route.access,
            given[0] if len(given) == 1 else "",
            certified=secured and is_certified(self.connection),
            loopback=self.server.loopback,
        )

    do_HEAD = do_GET  # noqa: N815 - http.server's name; _send leaves the body out

    def do_POST(self) -> None:
        """Refuse methods that change something: nothing here can be changed."""
        self._timed.allow(ANSWER_SECONDS)
        self.close_connection = True  # the body is not read
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
            return route.answer(Request(fields, accept, coding))
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

        When the pieces end in an error the connection breaks off before the last chunk, so that
        the peer knows its answer to be incomplete.
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
        """End the head, telling browsers not to guess what a body is."""
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in self.server.guard.headers():
            self.send_header(name, value)
        super().end_headers()

    def version_string(self) -> str:
        """Name the server without the versions it is built from."""
        return self.server.name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log requests where only those see them who look for them."""
        log.debug("%s %s", self.client_address[0], format % args)


def _gzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(GZIP_LEVEL, wbits=zlib.MAX_WBITS | 16)  # 16 asks for gzip's frame
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def _refuse(request: socket.socket, *, readable: bool) -> None:
    """Send the refusal, after a short wait for the request.

    Closing a socket with unread bytes in it would reset it, and lose the refusal on its way. A
    peer that waits for a TLS handshake could not read it, and is not sent any.
    """
    if not readable:
        return
    request.settimeout(REFUSAL_TIMEOUT_SECONDS)
    with contextlib.suppress(OSError):
        request.recv(65536)
    with contextlib.suppress(OSError):
        request.sendall(_REFUSAL)


def _resolve(listen: ListenAddress) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Find the family and address to bind; an empty host means all addresses of both families."""
    if not listen.host:
        if _ipv6_works():
            return socket.AF_INET6, ("::", listen.port)
        return socket.AF_INET, ("", listen.port)
    flags = socket.AI_PASSIVE
    found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=flags)
    return found[0][0], found[0][4]


def _ipv6_works() -> bool:
    """Whether a socket can listen on IPv6: it can be compiled in and still be switched off."""
    if not socket.has_dualstack_ipv6():
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True
