"""Liveness on a port of its own: fixed answers to short heads, whatever others do there."""

from __future__ import annotations

import contextlib
import http.client
import socket

import pytest

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.web import health
from rankscope_agent.web.health import HealthServer
from serving import LOOPBACK, PATIENCE_SECONDS

MAX_CONNECTIONS = 64
MAX_HEAD_BYTES = 1024

# As the kubelet's prober sends it.
PROBE = (
    b"GET /healthz HTTP/1.1\r\nHost: 10.0.0.7:9879\r\nUser-Agent: kube-probe/1.36\r\n"
    b"Accept: */*\r\nConnection: close\r\n\r\n"
)
NEIGHBOURS = ("127.0.0.2", "127.0.0.3")


class Alive:
    """Whether the agent is said to be alive."""

    value = True

    def __call__(self):
        return self.value


@pytest.fixture
def alive():
    return Alive()


@pytest.fixture
def port(alive):
    with HealthServer(ListenAddress(LOOPBACK, 0), alive) as server:
        yield server.port


def connected(port, source=LOOPBACK):
    address = (LOOPBACK, port)
    return socket.create_connection(address, PATIENCE_SECONDS, source_address=(source, 0))


def conversation(port, request, source=LOOPBACK):
    """Send all, and return all that comes until the server ends."""
    with connected(port, source) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_probe_is_told_in_one_sentence(port):
    answer = conversation(port, PROBE)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == b"The agent is alive.\n"
    assert b"Content-Length: %d" % len(body) in head


def test_an_agent_that_only_a_restart_mends_says_so(port, alive):
    alive.value = False
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (
            503,
            b"A thread has ended; only a restart brings it back.\n",
        )


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /healthz?verbose HTTP/1.0\n\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /healthzz HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"405"),
        (b"\r\n", b"405"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"405"),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"a" * MAX_HEAD_BYTES, b"431"),
        (b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n", b"431"),
    ],
)
def test_everything_else_has_a_fixed_answer_too(port, request_bytes, status):
    answer = conversation(port, request_bytes)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"HTTP/1.1") == 1
    assert request_bytes.startswith(b"HEAD") is answer.endswith(b"\r\n\r\n")


def test_a_head_may_come_in_pieces(port):
    with connected(port) as connection:
        for number in range(len(PROBE)):
            connection.sendall(PROBE[number : number + 1])
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_silent_and_dripping_connections_keep_no_probe_waiting(port):
    with contextlib.ExitStack() as stack:
        received = []
        for number in range(3 * MAX_CONNECTIONS):
            received.append(stack.enter_context(connected(port, NEIGHBOURS[number % 2])))
            for connection in received[-8:]:
                connection.send(b"G")
            if number % 8 == 0:
                assert conversation(port, PROBE).startswith(b"HTTP/1.1 200")


def test_an_answer_that_nobody_takes_ends_with_its_time(port, monkeypatch):
    monkeypatch.setattr(health, "CONNECTION_SECONDS", 0.1)
    with connected(port) as silent, connected(port) as exchange:
        exchange.sendall(PROBE)
        assert silent.recv(1) == b""
        assert exchange.recv(12) == b"HTTP/1.1 200"


def test_who_goes_on_after_its_answer_is_cut_off(port):
    with connected(port) as flood:
        flood.sendall(PROBE)
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            flood.sendall(b"a" * (256 << 20))
    assert conversation(port, PROBE).startswith(b"HTTP/1.1 200")


def test_an_address_in_use_is_an_error_at_once():
    with socket.create_server((LOOPBACK, 0)) as taken, pytest.raises(OSError, match="in use"):
        HealthServer(ListenAddress(LOOPBACK, taken.getsockname()[1]), Alive())


def test_both_families_are_listened_on():
    with HealthServer(ListenAddress("", 0), Alive()) as server:
        assert conversation(server.port, PROBE).startswith(b"HTTP/1.1 200")
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::1", 0))
            except OSError:
                pytest.skip("no IPv6 here")
            probe.settimeout(PATIENCE_SECONDS)
            probe.connect(("::1", server.port))
            probe.sendall(PROBE)
            assert probe.recv(12) == b"HTTP/1.1 200"
