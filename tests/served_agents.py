"""An agent's server on the loopback with fake sources, and a client for it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading

from rankscope_agent.collecting.registry import Registry
from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import RankIdentity
from rankscope_agent.serving.api import Api
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.web.access import OPEN
from rankscope_agent.web.server import WebServer

PATIENCE_SECONDS = 20.0
RANK = RankIdentity("ns/train", 3, "node-1", 3, 4, None, 0, "wall", "torchrun", "", 4711, True)


def row(step, start):
    return ("ns/train", step, 3, "node-1", 3, start, 0.5, None, 0.1, 0.2, 0, 3, 0, 0, 32, 0, "wall")


class Steps:
    """Has one rank, and rows that a test sets; remembers what it was asked."""

    def __init__(self):
        self.rows = [row(1, 100.0), row(2, 101.0)]
        self.asked = []

    def ranks(self):
        return (RANK,)

    def steps(self, job_id, since_unix_seconds, leave_out=None):
        self.asked.append((job_id, since_unix_seconds))
        yield from self.rows

    def starts(self, job_id, before_unix_seconds):
        self.asked.append((job_id, before_unix_seconds))
        yield from self.rows[:1]


class Working:
    def collect(self):
        yield metrics.STEPS.sample(7, job_id="<b>&", rank="0")


class WithoutSource:
    def collect(self):
        raise NoData("<script>alert(1)</script>")


class Hanging:
    def __init__(self):
        self.released = threading.Event()

    def collect(self):
        self.released.wait(PATIENCE_SECONDS)
        return ()


class Agent:
    """A server with its sources, and a client for it."""

    def __init__(self, creators, deadline=PATIENCE_SECONDS, guard=OPEN):
        self.steps = Steps()
        self.registry = Registry("node-1", creators, 3600, deadline)
        self.windows = FlightWindows()
        api = Api(
            "node-1", self.registry, self.steps, 2000, disabled=("nvml",), windows=self.windows
        )
        self.server = WebServer(ListenAddress("127.0.0.1", 0), api.routes(), guard)
        self.port = self.server.server_port
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self.thread.start()

    def close(self):
        self.registry.stop()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(PATIENCE_SECONDS)

    def ask(self, path, method="GET", **headers):
        """Return status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def raw(self, request):
        """Send bytes, and return everything that comes until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))
