"""A real Alertmanager for tests, and a receiver that keeps what it sends."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_dashboards.rules import routing
from rankscope_dashboards.rules.receivers import NOBODY
from rankscope_dashboards.rules.receivers import receivers as receivers_of
from rankscope_dashboards.rules.routing import Timings
from rankscope_dashboards.yaml_text import dump
from servers import require_server

PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class Notifications:
    """What was sent, oldest first: pairs of receiver and Alertmanager's message."""

    url: str
    got: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@contextlib.contextmanager
def webhooks() -> Iterator[Notifications]:
    """Listen for notifications; the path is the receiver's name."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            notifications.got.append((self.path.strip("/"), json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    notifications = Notifications(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield notifications
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def alertmanager(folder: Path, webhook: str, timings: Timings) -> Iterator[str]:
    """Run an Alertmanager with our routes and yield its address."""
    program = require_server("prometheus-alertmanager")
    receivers = {
        name: {"webhook_configs": [{"url": f"{webhook}/{name}"}]} if name != NOBODY else {}
        for name in receivers_of(Configuration())
    }
    path = folder / "alertmanager.yml"
    path.write_text(dump(routing.configuration(receivers, timings)))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={path}",
                f"--storage.path={folder / 'alertmanager'}",
                f"--web.listen-address={address}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _await(address, folder / "alertmanager.log")
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def _await(address: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/-/ready"):
            return
        time.sleep(0.05)
    raise AssertionError(f"Alertmanager is not ready: {log.read_text()[-2000:]}")


def post(address: str, alerts: list[dict[str, Any]]) -> None:
    """Send alerts as Prometheus does."""
    request = urllib.request.Request(
        f"http://{address}/api/v2/alerts",
        json.dumps(alerts).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS):
        pass


def alerts_of(address: str) -> list[dict[str, Any]]:
    """Return the alerts that an Alertmanager has, with their states."""
    url = f"http://{address}/api/v2/alerts"
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        alerts: list[dict[str, Any]] = json.load(answer)
    return alerts
