"""Connections to many agents: TLS and tokens, what stays open, and answers that are none."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from certificates import Authority
from counted_work import counted_waits
from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.web.access import AccessSettings, Guard
from rankscope_agent.web.routes import JSON_TYPE, Response, Route
from rankscope_agent.web.server import WebServer
from rankscope_analyzers.intake.agent_client import StatusError
from rankscope_analyzers.intake.agent_connections import AgentConnections, Answer, Question
from rankscope_analyzers.intake.credentials import NONE, CredentialsError, Entry
from serving import answering

TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
WAIT_SECONDS = 10.0
STEPS = Route(lambda _: Response(200, JSON_TYPE, b"{}"))


@contextlib.contextmanager
def serving(guard):
    server = WebServer(ListenAddress("127.0.0.1", 0), {"/steps": STEPS}, guard)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(url, entry, times=1):
    """Return what an agent says, asked so often by one reader."""
    connections = AgentConnections(entry)
    try:
        found = [
            connections.ask({url: [Question("/steps")]}, WAIT_SECONDS)[url][0] for _ in range(times)
        ]
        return found, connections
    finally:
        connections.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign("server")
    return made


@pytest.fixture
def secured(authority, tmp_path):
    """Serve with TLS and a token; give the address and the token's file."""
    folder = authority.cert.parent
    config, tokens = folder / "web.yml", tmp_path / "tokens"
    config.write_text(TLS)
    tokens.write_text("open-sesame-0123456789\n")
    with serving(Guard(AccessSettings(config, tokens))) as url:
        yield url, tokens


def test_an_agent_with_tls_and_a_token_answers_who_shows_it(secured, authority):
    url, tokens = secured
    entry = Entry(tokens, authority.cert, server_name="rankscope-agent")
    (first, second), _ = asked(url, entry, times=2)
    assert first == second == Answer(JSON_TYPE, b"{}")


def test_a_token_that_is_not_the_agents_is_refused(secured, authority, tmp_path):
    url, _ = secured
    wrong = tmp_path / "wrong"
    wrong.write_text("another-one-0123456789\n")
    (found,), _ = asked(url, Entry(wrong, authority.cert, server_name="rankscope-agent"))
    assert isinstance(found, StatusError)
    assert found.status == 401


def test_an_agent_whose_certificate_is_somebody_elses_is_shown_no_token(secured, authority):
    url, tokens = secured
    (found,), _ = asked(url, Entry(tokens, authority.cert, server_name="another-name"))
    assert "cannot be reached" in str(found)
    assert "ertificate" in str(found)


def test_a_token_that_cannot_be_read_is_said_before_anybody_is_asked(tmp_path):
    connections = AgentConnections(Entry(tmp_path / "none"))
    with pytest.raises(CredentialsError, match="token cannot be read"):
        connections.ask({"http://127.0.0.1:1": [Question("/steps")]}, WAIT_SECONDS)
    connections.close()


class Wire:
    """Sends given bytes to each connection, and counts connections and requests."""

    def __init__(self, *answers, close=False):
        self.answers, self.closes = list(answers), close
        self.connections = self.requests = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.close()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                with connection:
                    self._answer(connection)

    def _answer(self, connection):
        while self.answers and connection.recv(65536):
            self.requests += 1
            connection.sendall(self.answers.pop(0))
            if self.closes:
                return


def plain(body, head=b""):
    return b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


def test_one_connection_carries_all_answers():
    with Wire(plain(b"1"), plain(b"2"), plain(b"3")) as wire:
        found, _ = asked(wire.url, NONE, times=3)
        assert [one.body for one in found] == [b"1", b"2", b"3"]
        assert (wire.connections, wire.requests) == (1, 3)


def test_a_connection_that_was_closed_meanwhile_is_opened_anew():
    with Wire(plain(b"1"), plain(b"2"), close=True) as wire:
        connections = AgentConnections(NONE)
        for expected in (b"1", b"2"):
            (answer,) = connections.ask({wire.url: [Question("/steps")]}, WAIT_SECONDS)[wire.url]
            assert answer.body == expected
            connections.idle(0.05)
        assert wire.connections == 2
        connections.close()


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (b"SSH-2.0-OpenSSH_9.0\r\n\r\n", "begins with"),
        (
            b"HTTP/1.1 200 OK\r\nRankscope-Api-Version: 99\r\nContent-Length: 0\r\n\r\n",
            "version 99",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "does not answer like"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "does not answer like"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "begins with"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 80000 + b"\r\n\r\n", "does not answer like"),
        (plain(b"nonsense", b"Content-Encoding: gzip\r\n"), "does not answer like"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n", "answers 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "does not answer like"),
    ],
    ids=["ssh", "version", "length", "chunk", "headers", "head", "gzip", "redirect", "cut"],
)
def test_an_answer_that_is_none_is_said(sent, complaint):
    with Wire(sent, close=True) as wire:
        (found,), _ = asked(wire.url, NONE)
        assert complaint in str(found)


def test_what_is_no_address_of_an_agent_is_said():
    (found,), _ = asked("ftp://127.0.0.1", NONE)
    assert "not the http address of an agent" in str(found)


def test_a_late_answer_comes_with_a_later_look(monkeypatch):
    released, waits = threading.Event(), counted_waits(monkeypatch)

    def late(_):
        released.wait(30)
        return Response(200, JSON_TYPE, b"late")

    with answering({"/steps": Route(late, "open")}) as url:
        connections = AgentConnections(NONE)
        questions = {url: [Question("/steps")]}
        assert connections.ask(questions, 0.2) == {}
        assert (connections.asked, waits) == ({url}, [1])
        assert connections.ask(questions, 30.0) == {}
        waits_of_both = list(waits)
        released.set()
        until = time.monotonic() + WAIT_SECONDS
        found = {}
        while not found and time.monotonic() < until:
            connections.idle(0.05)
            found = connections.ask({}, 0.0)
        assert found[url] == [Answer(JSON_TYPE, b"late")]
        connections.close()
    assert waits_of_both == [1]


def test_agents_that_are_forgotten_are_asked_nothing_any_more():
    with Wire(b"") as wire:
        connections = AgentConnections(NONE)
        connections.ask({wire.url: [Question("/steps")]}, 0.0)
        connections.keep(())
        assert connections.asked == frozenset()
        connections.close()


def test_an_answer_that_is_too_large_is_not_unpacked():
    body = b"x" * (1 << 20)
    big = Route(lambda _: Response(200, JSON_TYPE, iter([body]), compress=True), "open")
    with answering({"/big": big}) as url:
        connections = AgentConnections(NONE)
        question = Question("/big", most_bytes=(1 << 20) - 1)
        (error,) = connections.ask({url: [question]}, WAIT_SECONDS)[url]
        assert "more than" in str(error)
        (answer,) = connections.ask({url: [Question("/big", most_bytes=1 << 20)]}, WAIT_SECONDS)[
            url
        ]
        assert answer == Answer(JSON_TYPE, body)
        connections.close()
