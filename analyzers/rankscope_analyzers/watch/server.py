"""Serves the findings of `rankscope watch`, with the agents' server and access control."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from rankscope_agent.contract.address import ListenAddress, parse_listen_address
from rankscope_agent.web.access import AccessSettings, Guard
from rankscope_agent.web.routes import Request, Response, Route, sentence
from rankscope_agent.web.server import WebServer
from rankscope_analyzers.command import InputError
from rankscope_analyzers.watch.exporter import FindingsExporter


def start(exporter: FindingsExporter, listen: ListenAddress, guard: Guard) -> WebServer:
    """Listen and serve in threads of the server.

    Raises:
        InputError: the address is in use or not an address of this host.
    """
    try:
        server = WebServer(listen, _routes(exporter), guard, "rankscope-watch")
    except OSError as error:
        where = f"{listen.host}:{listen.port}"
        raise InputError(f"cannot listen on {where}: {error.strerror}") from None
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


def listen_settings(options: argparse.Namespace) -> tuple[ListenAddress, Guard]:
    """Return the address to listen on and the access control.

    Raises:
        InputError: an option cannot be used.
    """
    tokens: Path | None = options.web_token_file
    settings = AccessSettings(options.web_config_file, tokens, protect_metrics=tokens is not None)
    try:
        listen = parse_listen_address(options.listen)
    except ValueError as error:
        raise InputError(f"--web.listen-address: {error}") from None
    try:
        return listen, Guard(settings)
    except ValueError as error:
        raise InputError(str(error)) from None


def liveness(exporter: FindingsExporter) -> tuple[int, str]:
    """Return status and sentence for the liveness probe: a watch that hangs is restarted."""
    if exporter.overdue:
        return 503, "The watch hangs: an evaluation does not end."
    return 200, "The watch is running."


def readiness(exporter: FindingsExporter) -> tuple[int, str]:
    """Return status and sentence for the readiness probe."""
    problem = exporter.leadership_problem
    if not exporter.is_leader:
        if problem:
            return (
                503,
                f"This watch is on standby and does not know whether another evaluates: {problem}.",
            )
        return 200, "Another watch evaluates; this one is on standby."
    if not exporter.evaluated:
        return 503, "The first evaluation has not ended."
    return 200, "The first evaluation has ended." + (f" But {problem}." if problem else "")


def _routes(exporter: FindingsExporter) -> dict[str, Route]:
    def metrics(request: Request) -> Response:
        return Response(200, CONTENT_TYPE_PLAIN_0_0_4, exporter.text().encode())

    def healthz(request: Request) -> Response:
        return sentence(*liveness(exporter))

    def readyz(request: Request) -> Response:
        return sentence(*readiness(exporter))

    return {
        "/metrics": Route(metrics, "page"),
        "/healthz": Route(healthz, "open"),
        "/readyz": Route(readyz, "open"),
    }
