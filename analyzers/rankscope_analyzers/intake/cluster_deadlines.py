"""One deadline for each response of the API server, through Kubernetes' own client.

Its `_request_timeout` applies to connecting and to each read separately. This module is imported
only along with the client, as it needs urllib3.
"""

from __future__ import annotations

import socket
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context

from rankscope_analyzers.intake.deadline import Deadline, TimedSocket, TimedTlsSocket, connect


class _Timed:
    """The common part of connections: `timeout` applies to the whole response."""

    _asked = False
    _began: Deadline | None = None

    def _new_conn(self) -> socket.socket:
        self._asked, self._began = False, self._deadline()
        made = connect((self._dns_host, self.port), self._began)  # type: ignore[attr-defined]
        for option in self.socket_options or ():  # type: ignore[attr-defined]
            made.setsockopt(*option)
        return made

    def _deadline(self) -> Deadline:
        seconds = self.timeout  # type: ignore[attr-defined]
        return Deadline(float(seconds), connect_seconds=float(seconds))

    def request(self, *arguments: Any, **named: Any) -> None:
        """Send a request; the time of its response begins here, or with the connection."""
        own = getattr(self, "sock", None)
        if self._asked and isinstance(own, TimedSocket | TimedTlsSocket):
            own.deadline = self._deadline()
        super().request(*arguments, **named)  # type: ignore[misc]
        self._asked = True


class _PlainConnection(_Timed, HTTPConnection):
    """To an API server, or a proxy, without TLS."""


class _SecureConnection(_Timed, HTTPSConnection):
    """With TLS; its context makes sockets that know deadlines."""

    def connect(self) -> None:
        """Connect; the TLS socket has the deadline of the one below it."""
        super().connect()
        if isinstance(self.sock, TimedTlsSocket):
            self.sock.deadline = self._began


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def bound(client: Any) -> None:
    """Give each response that a client waits for one deadline: the `_request_timeout` of its call.

    Args:
        client: a `kubernetes.client.ApiClient`.
    """
    manager = client.rest_client.pool_manager
    if type(manager) not in {urllib3.PoolManager, urllib3.ProxyManager}:
        return  # a SOCKS proxy has its own kind of connections
    settings = manager.connection_pool_kw
    context = create_urllib3_context(cert_reqs=settings.get("cert_reqs"))
    context.sslsocket_class = TimedTlsSocket
    if not (settings.get("ca_certs") or settings.get("ca_cert_data")):
        context.load_default_certs()
    settings["ssl_context"] = context
    manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}
