"""The HTTP server: connections, limits and transfer; the routes provide the answers."""

from __future__ import annotations

import logging
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from http.server import HTTPServer
from typing import Any

from rankscope_agent.contract.address import ListenAddress, is_loopback
from rankscope_agent.web.access import Guard
from rankscope_agent.web.connection_slots import Slot
from rankscope_agent.web.handler import Handler, Site
from rankscope_agent.web.listening import BACKLOG, EXHAUSTED, PAUSE_SECONDS, resolve, url_of
from rankscope_agent.web.refusals import Refusals
from rankscope_agent.web.routes import Route

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0  # TLS takes two round trips; anything slower holds a slot for nothing


class WebServer(HTTPServer):
    """A threading server with limited connections that listens on IPv6 and IPv4 at once.

    Args:
        listen: the address to listen on.
        routes: every path that is answered.
        guard: decides which requests are answered.
        name: the server's name for itself.

    Raises:
        OSError: listening on the address fails.
    """

    request_queue_size = BACKLOG

    def __init__(
        self,
        listen: ListenAddress,
        routes: Mapping[str, Route],
        guard: Guard,
        name: str = "rankscope-agent",
    ) -> None:
        self.guard = guard
        self.address_family, address = resolve(listen)
        loopback = bool(listen.host) and is_loopback(str(address[0]))
        self._site = Site(routes, guard, name, loopback=loopback)
        self._slots = self._site.slots
        self._refusals = Refusals()
        # Handlers are created by `_serve`, which knows their slots.
        super().__init__(address, socketserver.BaseRequestHandler)
        # A peer that resets its connection before it is accepted must not block accept().
        self.socket.setblocking(False)

    @property
    def url(self) -> str:
        """The actual address of the server."""
        return url_of(self.server_address, "https" if self.guard.secure else "http")

    @property
    def refuses_api(self) -> bool:
        """Return True if no client can be admitted to the API."""
        return self.guard.closes_api(loopback=self._site.loopback)

    def server_bind(self) -> None:
        """Bind without the reverse name lookup of http.server, which can take seconds."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection.

        Raises:
            OSError: it is gone, or there is no descriptor for it; then one is freed.
        """
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in EXHAUSTED:
                self._slots.evict_one()
                time.sleep(PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread, or reject it if there are too many."""
        slot = self._slots.acquire(str(client_address[0]), request)
        if slot is None:
            self._reject(request)
            return
        thread = threading.Thread(target=self._serve, args=(slot, client_address), daemon=True)
        try:
            thread.start()
        except BaseException:  # no thread was started, so none will release the slot
            self._slots.release(slot)
            raise

    def service_actions(self) -> None:
        """Close rejected connections, twice a second or more often."""
        self._refusals.sweep()

    def server_close(self) -> None:
        """Stop listening."""
        super().server_close()
        self._refusals.close()

    def _reject(self, connection: socket.socket) -> None:
        if self.guard.secure:  # a peer that waits for a handshake could not read it
            connection.close()
        else:
            self._refusals.add(connection)

    def _serve(self, slot: Slot, address: Any) -> None:
        """Secure a connection if required, serve it and release its slot."""
        try:
            if self._secure(slot, address):
                Handler(slot, address, self, self._site)
        except Exception:  # noqa: BLE001 - what a connection brings about ends that one alone
            self.handle_error(slot.connection, address)
        finally:
            self._slots.release(slot)
            self.shutdown_request(slot.connection)

    def _secure(self, slot: Slot, address: Any) -> bool:
        """Perform the handshake if required; return False if the connection must not be served."""
        context = self.guard.context()
        if context is None:
            return True
        plain = slot.connection
        plain.settimeout(HANDSHAKE_SECONDS)
        try:
            secured = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
            if not self._slots.secured(slot, secured):
                return False
            secured.do_handshake()
        except OSError as error:  # SSLError among them
            log.debug("TLS with %s failed: %s", address, error)
            return False
        if not self.guard.admits(secured):
            log.debug("the certificate of %s is not in client_allowed_sans", address)
            return False
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what ended a connection; peers that disconnected are only logged for debugging."""
        error = sys.exc_info()[1]
        if isinstance(error, ConnectionError | TimeoutError | ssl.SSLError):
            log.debug("connection from %s ended: %s", client_address, error)
        else:
            log.error("answering %s failed", client_address, exc_info=error)
