"""Servers for tests: of given answers, and one with a path of each kind of access."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator, Mapping

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.web.access import OPEN, AccessSettings, Guard
from rankscope_agent.web.routes import Route, sentence
from rankscope_agent.web.server import WebServer

PATIENCE_SECONDS = 20.0
EVERYWHERE, LOOPBACK = "0.0.0.0", "127.0.0.1"
ROUTES = {
    "/healthz": Route(lambda request: sentence(200, "healthy"), "open"),
    "/metrics": Route(lambda request: sentence(200, "metrics"), "page"),
    "/api/v1/steps": Route(lambda request: sentence(200, "steps")),
}


@contextlib.contextmanager
def answering(routes: Mapping[str, Route]) -> Iterator[str]:
    """Answer on loopback, without access control, until the block ends; give the address."""
    server = WebServer(ListenAddress(LOOPBACK, 0), routes, OPEN)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Serving:
    """A server of three paths, one of each kind of access."""

    def __init__(self, host=EVERYWHERE, **settings):
        self.server = WebServer(ListenAddress(host, 0), ROUTES, Guard(AccessSettings(**settings)))
        self.port = self.server.server_port
        self._thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()
        self._thread.join(PATIENCE_SECONDS)

    def status(self, path, **headers):
        return self.answer(path, **headers)[0]

    def answer(self, path, **headers):
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def statuses(self, **headers):
        """Return the statuses of the three paths."""
        return [self.status(path, **headers) for path in ROUTES]

    def url(self, scheme="http"):
        return f"{scheme}://{LOOPBACK}:{self.port}"
