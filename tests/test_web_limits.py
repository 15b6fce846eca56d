"""How long and how often a peer is served: slow, silent and many connections."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time

import pytest

from certificates import Authority
from rankscope_agent.web import handler, timed_socket
from rankscope_agent.web.routes import Route, sentence
from serving import LOOPBACK, PATIENCE_SECONDS, ROUTES, Serving

MAX_ANSWERS_PER_PEER = 16
MAX_CONNECTIONS = 64
MAX_KEPT = 32
MAX_PER_PEER = 32

NEIGHBOURS = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")


def connected(serving, source=LOOPBACK):
    address = (LOOPBACK, serving.port)
    return socket.create_connection(address, PATIENCE_SECONDS, source_address=(source, 0))


def asked(connection, path="/healthz"):
    """Ask for a path, and return the status line's first bytes."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return connection.recv(12)


class Working:
    """A path whose answers take until they are let go."""

    def __init__(self, monkeypatch):
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()
        monkeypatch.setitem(ROUTES, "/work", Route(self.answer, "open"))

    def answer(self, request):
        self.begun.release()
        self.go_on.wait(PATIENCE_SECONDS)
        return sentence(200, "done")

    def begin(self, connection):
        connection.sendall(b"GET /work HTTP/1.1\r\nHost: a\r\n\r\n")
        assert self.begun.acquire(timeout=PATIENCE_SECONDS)
        return connection


@pytest.fixture
def working(monkeypatch):
    made = Working(monkeypatch)
    yield made
    made.go_on.set()


def test_a_request_that_drips_in_is_dropped_however_steadily_it_drips(monkeypatch):
    monkeypatch.setattr(handler, "REQUEST_SECONDS", 0.5)
    with Serving() as serving, connected(serving) as slow:
        slow.settimeout(0.05)
        until = time.monotonic() + PATIENCE_SECONDS
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < until:
                slow.send(b"G")
                with contextlib.suppress(TimeoutError):
                    if slow.recv(1) == b"":
                        break
        assert time.monotonic() < until


def long_answer(pieces):
    answer = sentence(200, "")
    return type(answer)(200, answer.content_type, pieces)


def test_an_answer_that_nobody_takes_gives_its_place_back(monkeypatch):
    monkeypatch.setattr(handler, "ANSWER_SECONDS", 0.3)
    ended = threading.Event()

    def endless():
        try:
            while True:
                yield b"x" * 65536
        finally:
            ended.set()

    monkeypatch.setitem(ROUTES, "/long", Route(lambda request: long_answer(endless()), "open"))
    with Serving() as serving, connected(serving) as slow:
        slow.sendall(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
        assert ended.wait(PATIENCE_SECONDS)


LONG = 64 << 20


@pytest.mark.parametrize("secured", [False, True])
def test_an_answer_that_is_taken_slowly_has_one_deadline_over_tls_as_well(
    tmp_path, monkeypatch, secured
):
    monkeypatch.setattr(handler, "ANSWER_SECONDS", 0.3)
    whole = sentence(200, "x" * LONG)
    monkeypatch.setitem(ROUTES, "/long", Route(lambda request: whole, "open"))
    settings, context = tls_of(tmp_path) if secured else ({}, None)
    with Serving(**settings) as serving:
        plain = connected(serving)
        slow = context.wrap_socket(plain, server_hostname=LOOPBACK) if context else plain
        with slow:
            slow.sendall(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
            assert 0 < taken_slowly(slow) < LONG


def tls_of(folder):
    authority = Authority(folder)
    authority.sign("server")
    config = folder / "web.yml"
    config.write_text("tls_server_config: {cert_file: server.crt, key_file: server.key}\n")
    context = ssl.create_default_context(cafile=authority.cert)
    return {"config_file": config}, context


def taken_slowly(connection):
    """Return how many bytes come until the other side ends."""
    taken = 0
    with contextlib.suppress(OSError):
        while more := connection.recv(262144):
            taken += len(more)
            time.sleep(0.01)
    return taken


def test_one_address_gets_half_of_the_places_at_most():
    with contextlib.ExitStack() as stack, Serving() as serving:
        received = [stack.enter_context(connected(serving)) for _ in range(MAX_CONNECTIONS)]
        assert {connection.recv(1) for connection in received[:MAX_PER_PEER]} == {b""}
        assert {asked(connection) for connection in received[MAX_PER_PEER:]} == {b"HTTP/1.1 200"}


def test_one_address_gets_a_quarter_of_the_answers_at_most(working):
    with contextlib.ExitStack() as stack, Serving() as serving:
        for _ in range(MAX_ANSWERS_PER_PEER):
            working.begin(stack.enter_context(connected(serving)))
        status, _, body = serving.answer("/healthz")
        assert (status, body) == (503, "16 answers are being sent to this address.\n")
        with connected(serving, NEIGHBOURS[0]) as other:
            assert asked(other) == b"HTTP/1.1 200"
        working.go_on.set()
        for _ in range(int(PATIENCE_SECONDS / 0.02)):
            if serving.status("/healthz") == 200:
                return
            time.sleep(0.02)
        raise AssertionError("the share of the address did not come back")


def test_when_all_are_being_answered_newcomers_are_told_and_places_come_back(working):
    with contextlib.ExitStack() as stack, Serving() as serving:
        received = [
            working.begin(stack.enter_context(connected(serving, source)))
            for source in NEIGHBOURS
            for _ in range(MAX_ANSWERS_PER_PEER)
        ]
        assert len(received) == MAX_CONNECTIONS
        # Silent ones are turned away as others are, more of them than are kept until they read.
        for _ in range(2 * MAX_KEPT):
            stack.enter_context(connected(serving))
        status, headers, body = serving.answer("/metrics")
        assert (status, headers["Retry-After"]) == (503, "1")
        assert body == "Too many connections are open; try again in a moment.\n"
        working.go_on.set()
        assert {connection.recv(12) for connection in received} == {b"HTTP/1.1 200"}
        assert serving.status("/metrics") == 200


def test_silent_connections_make_room_for_those_who_ask():
    with contextlib.ExitStack() as stack, Serving() as serving:
        for number in range(4 * MAX_CONNECTIONS):
            stack.enter_context(connected(serving, NEIGHBOURS[number % 2]))
            if number % 8 == 0:
                assert serving.status("/healthz") == 200


def test_the_oldest_silent_connection_of_the_address_that_holds_most_makes_room(working):
    with contextlib.ExitStack() as stack, Serving() as serving:
        busy = working.begin(stack.enter_context(connected(serving, NEIGHBOURS[0])))
        one = stack.enter_context(connected(serving, NEIGHBOURS[1]))
        assert asked(one) == b"HTTP/1.1 200"
        silent = [
            stack.enter_context(connected(serving, NEIGHBOURS[0])) for _ in range(MAX_PER_PEER - 1)
        ]
        newcomer = stack.enter_context(connected(serving, NEIGHBOURS[0]))
        assert silent[0].recv(1) == b""
        assert asked(newcomer) == b"HTTP/1.1 200"
        assert asked(silent[1]) == b"HTTP/1.1 200"
        working.go_on.set()
        assert busy.recv(12) == b"HTTP/1.1 200"


def test_a_silent_tls_connection_makes_room_too(tmp_path):
    settings, context = tls_of(tmp_path)
    with contextlib.ExitStack() as stack, Serving(**settings) as serving:
        silent = [stack.enter_context(connected(serving)) for _ in range(MAX_PER_PEER // 2)]
        exchange = [
            stack.enter_context(context.wrap_socket(connected(serving), server_hostname=LOOPBACK))
            for _ in range(MAX_PER_PEER)
        ]
        assert {connection.recv(1) for connection in silent} == {b""}
        assert {asked(connection) for connection in exchange} == {b"HTTP/1.1 200"}


def test_a_clock_that_has_run_out_stops_a_socket_before_it_reads():
    left, right = socket.socketpair()
    with left, right:
        right.sendall(b"x")
        clock = timed_socket.TimedSocket(left)
        clock.allow(-1)
        with pytest.raises(TimeoutError):
            clock.readinto(bytearray(1))
        clock.allow(PATIENCE_SECONDS)
        assert clock.readinto(bytearray(1)) == 1
