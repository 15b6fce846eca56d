"""Answers whose connection ends in the middle are never taken for whole ones."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
import time

import pytest

from faulty_clusters import Cluster
from rankscope_analyzers import cli
from rankscope_analyzers.intake import agent_pages
from rankscope_analyzers.intake.agent_client import Agent

PATIENCE = 20.0


@pytest.fixture(scope="module")
def page():
    """Return what an agent of a node with eight GPUs exports."""
    return list(Cluster({"gpu-0": "healthy"}, None).pages())[-1].text.encode()


class CuttingServer:
    """Answers each path with some bytes and closes the connection, whatever their head says."""

    def __init__(self, answers):
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(PATIENCE)
                path = connection.recv(65536).split()[1].decode()
                connection.sendall(self._answers[path])

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def with_length(body, *more):
    return b"\r\n".join((b"HTTP/1.1 200 OK", *more, b"Content-Length: %d" % len(body), b"", body))


def chunked(body, *more):
    head = (b"HTTP/1.1 200 OK", *more, b"Transfer-Encoding: chunked", b"")
    return b"\r\n".join((*head, b"%x" % len(body), body, b"0", b"", b""))


def without_length(body, *more):
    return b"\r\n".join((b"HTTP/1.0 200 OK", *more, b"", body))


GZIP = b"Content-Encoding: gzip"
FORMS = {
    "with length": with_length,
    "with length, packed": lambda body: with_length(gzip.compress(body), GZIP),
    "chunked": chunked,
    "chunked, packed": lambda body: chunked(gzip.compress(body), GZIP),
    "packed, without length": lambda body: without_length(gzip.compress(body), GZIP),
}


@pytest.fixture
def polled():
    """Poll an agent that answers for its page with some bytes."""
    with contextlib.ExitStack() as servers:

        def poll(answer):
            health = with_length(b'{"node": "gpu-0"}')
            server = CuttingServer({"/healthz": health, "/metrics": answer})
            servers.callback(server.close)
            return agent_pages.poll([Agent(server.url)])

        yield poll


@pytest.mark.parametrize("form", FORMS)
def test_a_page_that_is_cut_off_is_no_page_and_its_agent_is_named(polled, page, form):
    answer = FORMS[form](page)
    (whole,) = polled(answer).pages
    assert whole.text == page.decode()
    for left in (8, len(answer) // 2):
        cut = polled(answer[:-left])
        assert cut.pages == ()
        (failure,) = cut.failures
        assert "ended in the middle of the answer" in failure or "IncompleteRead" in failure


def test_an_agent_that_is_busy_has_no_page(polled):
    """An agent that is asked too much refuses without looking at which path is asked."""
    busy = with_length(b"16 answers are being sent to this address.").replace(b"200 OK", b"503 No")
    found = polled(busy)
    assert found.pages == ()
    (failure,) = found.failures
    assert failure.endswith("/metrics answers 503")


def test_a_watch_whose_page_is_cut_off_has_not_missed_the_rank_of_a_canary(capsys):
    evaluated = f"rankscope_watch_last_evaluation_timestamp_seconds {time.time()}\n".encode()
    cut = with_length(evaluated + b"rankscope_canary_named")[:-10]
    server = CuttingServer({"/metrics": cut})
    with contextlib.closing(server):
        code = cli.main(["canary", "--json", "--patience", "0s", "--watch", server.url])
    outcome = json.loads(capsys.readouterr().out)
    assert (code, outcome["result"]) == (3, "unknown")
    assert f"{server.url}/metrics: the connection ended in the middle of" in outcome["reason"]
