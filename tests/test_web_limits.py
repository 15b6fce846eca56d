"""How long and how often a peer is served: slow, silent and many connections."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time

import pytest

from rankscope_agent.web import server, timed
from rankscope_agent.web.routes import Route, sentence
from serving import LOOPBACK, PATIENCE_SECONDS, ROUTES, Serving


def test_a_request_that_drips_in_is_dropped_however_steadily_it_drips(monkeypatch):
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.5)
    with (
        Serving() as serving,
        socket.create_connection((LOOPBACK, serving.port), PATIENCE_SECONDS) as slow,
    ):
        slow.settimeout(0.05)
        until = time.monotonic() + PATIENCE_SECONDS
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < until:
                slow.send(b"G")
                with contextlib.suppress(TimeoutError):
                    if slow.recv(1) == b"":
                        break
        assert time.monotonic() < until


def test_an_answer_that_nobody_takes_gives_its_place_back(monkeypatch):
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.3)
    ended = threading.Event()

    def endless():
        try:
            while True:
                yield b"x" * 65536
        finally:
            ended.set()

    monkeypatch.setitem(ROUTES, "/long", Route(lambda request: long_answer(endless()), "open"))
    with (
        Serving() as serving,
        socket.create_connection((LOOPBACK, serving.port), PATIENCE_SECONDS) as slow,
    ):
        slow.sendall(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
        assert ended.wait(PATIENCE_SECONDS)


def long_answer(pieces):
    answer = sentence(200, "")
    return type(answer)(200, answer.content_type, pieces)


def test_one_address_gets_half_of_the_places_at_most():
    with contextlib.ExitStack() as stack, Serving() as serving:
        for _ in range(server.MAX_PER_PEER):
            address = (LOOPBACK, serving.port)
            held = stack.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
            held.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert held.recv(12) == b"HTTP/1.1 200"
        assert serving.status("/healthz") == 503
        other = http.client.HTTPConnection(
            LOOPBACK, serving.port, PATIENCE_SECONDS, source_address=("127.0.0.2", 0)
        )
        with contextlib.closing(other):
            other.request("GET", "/healthz")
            assert other.getresponse().status == 200


def test_a_clock_that_has_run_out_stops_a_socket_before_it_reads():
    left, right = socket.socketpair()
    with left, right:
        right.sendall(b"x")
        clock = timed.TimedSocket(left)
        clock.allow(-1)
        with pytest.raises(TimeoutError):
            clock.readinto(bytearray(1))
        clock.allow(PATIENCE_SECONDS)
        assert clock.readinto(bytearray(1)) == 1
