"""The last that is still served and the first that is not, of each limit of the web server."""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import os
import selectors
import socket
from types import SimpleNamespace

import bcrypt
import pytest

from certificates import Authority
from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.web import (
    health,
    listening,
    memory_arenas,
    refusals,
    server,
    timed_socket,
    watched_files,
)
from rankscope_agent.web.access import OPEN
from rankscope_agent.web.config_file import read_web_config
from rankscope_agent.web.connection_slots import Slots
from rankscope_agent.web.credentials import (
    Passwords,
    TooManyGuessesError,
    check_users,
    is_known_token,
    read_tokens,
)
from rankscope_agent.web.handler import Handler, Site, _gzipped
from rankscope_agent.web.health import HealthServer
from rankscope_agent.web.routes import Route, sentence
from rankscope_agent.web.server import WebServer
from rankscope_agent.web.watched_files import Watched, read_bounded
from serving import LOOPBACK, Serving
from standing_clock import Clock
from test_web_health import PROBE, connected, conversation


@pytest.fixture
def clock():
    return Clock()


def test_a_server_has_64_places_and_waits_for_64_evicted_connections_to_end():
    slots = Slots()
    with socket.socket() as unconnected:  # its shutdown fails, which nobody is told
        for number in range(128):
            assert slots.acquire(f"10.0.0.{number % 4}", unconnected) is not None
        assert slots.acquire("10.0.0.9", unconnected) is None


@pytest.mark.parametrize(
    ("tokens", "fault"),
    [
        (["a" * 16], None),
        (["a" * 15], "not 16 or more"),
        (["a" * 16] * 64, None),
        (["a" * 16] * 65, "65 tokens, expected 1 to 64"),
    ],
)
def test_a_file_has_1_to_64_tokens_of_16_or_more_characters(tmp_path, tokens, fault):
    path = tmp_path / "tokens"
    path.write_text("\n".join(tokens))
    if fault is None:
        assert is_known_token(f"Bearer {tokens[0]}", read_tokens(path))
        return
    with pytest.raises(ValueError, match=fault):
        read_tokens(path)


def test_four_requests_of_an_address_wait_for_the_same_comparison():
    passwords = Passwords()
    with contextlib.ExitStack() as waiting:
        for _ in range(4):
            waiting.enter_context(passwords._turn("10.0.0.1", b"key"))
        with pytest.raises(TooManyGuessesError):
            waiting.enter_context(passwords._turn("10.0.0.1", b"key"))
        waiting.enter_context(passwords._turn("10.0.0.2", b"key"))


def test_128_wrong_answers_are_remembered(monkeypatch):
    compared = []
    monkeypatch.setattr(bcrypt, "checkpw", lambda *both: bool(compared.append(both)))
    users, passwords = {"p": "$2b$04$" + "a" * 53}, Passwords()

    def guess(number):
        text = base64.b64encode(f"p:{number}".encode()).decode()
        assert not passwords.match(f"Basic {text}", users, "10.0.0.1")
        return len(compared)

    assert [guess(number) for number in range(128)][-1] == 128
    assert [guess(number) for number in (0, 127)] == [128, 128], "none is compared again"
    assert guess(128) == 129
    assert guess(0) == 130, "all are forgotten together"


def test_bcrypt_is_tried_with_a_hash_that_it_knows(monkeypatch):
    """The comparison at the start says whether there is a bcrypt: the hash is not to blame."""
    tried = []
    monkeypatch.setattr(bcrypt, "checkpw", lambda password, hashed: tried.append(hashed))
    check_users({"p": "$2b$04$" + "a" * 53})
    assert [len(hashed) for hashed in tried] == [60]


@pytest.mark.parametrize(("size", "taken"), [(4096, True), (4097, False)])
def test_a_header_has_4096_characters_at_most(tmp_path, size, taken):
    path = tmp_path / "web.yml"
    path.write_text(f"http_server_config: {{headers: {{X-Frame-Options: '{'x' * size}'}}}}\n")
    with contextlib.nullcontext() if taken else pytest.raises(ValueError, match="X-Frame-Options"):
        read_web_config(path)


class Recorded(socket.socket):
    """A connection whose timeouts are kept, and that goes on sending once its peer has ended."""

    flood = b""

    def __init__(self, made):
        super().__init__(fileno=made.detach())
        self.timeouts, self.reads, self.sizes = [], 0, []

    def settimeout(self, seconds):
        self.timeouts.append(seconds)
        super().settimeout(seconds)

    def recv_into(self, buffer, *rest):
        self.reads += 1
        self.sizes.append(len(buffer))
        count = super().recv_into(buffer, *rest)
        if count or not self.flood:
            return count
        buffer[: len(self.flood)] = self.flood
        return len(self.flood)


def handled(monkeypatch, clock, request, flood=b""):
    """Let a handler serve one connection at a time that stands still; return the connection."""
    monkeypatch.setattr(timed_socket, "time", clock)
    near, far = socket.socketpair()
    with Recorded(near) as connection, far:
        connection.flood = flood
        far.sendall(request)
        far.shutdown(socket.SHUT_WR)
        routes = {"/healthz": Route(lambda request: sentence(200, "healthy"), "open")}
        site = Site(routes, OPEN, "test", loopback=True)
        slot = site.slots.acquire("127.0.0.1", connection)
        Handler(slot, ("127.0.0.1", 1), SimpleNamespace(), site)
    return connection


def test_a_request_has_30_seconds_and_its_answer_120(monkeypatch, clock):
    connection = handled(monkeypatch, clock, b"GET /healthz HTTP/1.1\r\n\r\n")
    assert connection.timeouts == [30.0, 120.0, 30.0]


def test_the_rest_of_a_refused_request_has_one_second_and_64_reads(monkeypatch, clock):
    refused = b"POST /healthz HTTP/1.1\r\nContent-Length: 9\r\n\r\n"
    assert handled(monkeypatch, clock, refused).timeouts == [30.0, 120.0, 1.0]
    flooded = handled(monkeypatch, clock, refused, flood=b"x")
    assert flooded.reads == 1 + 64
    assert sum(flooded.sizes[1:]) == 512 << 10, "half a mebibyte"


@pytest.mark.parametrize(("being_sent", "status"), [(3, b" 200 "), (4, b" 503 ")])
def test_four_long_answers_are_sent_at_once(being_sent, status):
    routes = {"/steps": Route(lambda request: sentence(200, "steps"), "open", heavy=True)}
    site = Site(routes, OPEN, "test", loopback=True)
    for _ in range(being_sent):
        assert site.heavy_slots.acquire(blocking=False)
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"GET /steps HTTP/1.1\r\n\r\n")
        far.shutdown(socket.SHUT_WR)
        Handler(site.slots.acquire("127.0.0.1", near), ("127.0.0.1", 1), SimpleNamespace(), site)
        assert status in far.recv(4096).partition(b"\r\n")[0]


@pytest.mark.parametrize(("fields", "status"), [(16, 200), (17, 400)])
def test_a_query_has_16_fields_at_most(fields, status):
    with Serving() as serving:
        assert serving.status("/healthz?" + "&".join(["a=1"] * fields)) == status


def test_answers_are_packed_at_the_fastest_level():
    packed = b"".join(_gzipped(iter([b"x" * 100_000])))
    assert packed[8] == 4, "RFC 1952, XFL: the fastest algorithm"
    assert len(packed) < 1000


def test_a_liveness_connection_is_closed_after_five_seconds(monkeypatch, clock):
    monkeypatch.setattr(health, "time", clock)
    with (
        HealthServer(ListenAddress(LOOPBACK, 0), lambda: True) as served,
        connected(served.port) as silent,
    ):
        assert conversation(served.port, PROBE)
        clock.now += 4.9
        assert conversation(served.port, PROBE)
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.recv(1)
        clock.now += 0.2
        assert conversation(served.port, PROBE)
        silent.setblocking(True)
        assert silent.recv(1) == b""


class Unstarted:
    """A liveness server whose turns a test takes itself."""

    def __init__(self, stack):
        self.server = HealthServer(ListenAddress(LOOPBACK, 0), lambda: True)
        stack.callback(self.server._listening.close)
        self.selector = stack.enter_context(selectors.DefaultSelector())

    def exchanges(self):
        return list(self.server._exchanges.values())


@pytest.fixture
def unstarted():
    with contextlib.ExitStack() as stack:
        made = Unstarted(stack)
        yield made
        for exchange in made.exchanges():
            made.server._end(made.selector, exchange)


def test_the_liveness_server_accepts_16_connections_in_a_row(unstarted):
    with contextlib.ExitStack() as stack:
        for _ in range(17):
            stack.enter_context(connected(unstarted.server.port))
        unstarted.server._accept(unstarted.selector)
        assert len(unstarted.exchanges()) == 16
        unstarted.server._accept(unstarted.selector)
        assert len(unstarted.exchanges()) == 17


def test_who_was_answered_may_go_on_for_16_reads_in_all(unstarted):
    near, far = socket.socketpair()
    with near, far:
        unstarted.server._admit(unstarted.selector, near, "10.0.0.1")
        (exchange,) = unstarted.exchanges()
        for count in itertools.count(1):
            far.send(PROBE if count == 1 else b"x")
            unstarted.server._read(unstarted.selector, exchange)
            if not unstarted.exchanges():
                break
        assert count == 17


def test_the_liveness_server_looks_for_late_connections_twice_a_second(monkeypatch, unstarted):
    looks = []

    class Selector(selectors.DefaultSelector):
        def select(self, timeout=None):
            looks.append(timeout)
            unstarted.server._stop.set()
            return []

    monkeypatch.setattr(health.selectors, "DefaultSelector", Selector)
    unstarted.server._run()
    assert looks == [0.5]


def test_128_connections_wait_to_be_accepted(monkeypatch):
    backlogs = []

    class Listening(socket.socket):
        def listen(self, backlog=None):
            backlogs.append(backlog)

    monkeypatch.setattr(socket, "socket", Listening)
    listening.listening_socket(ListenAddress(LOOPBACK, 0)).close()
    WebServer(ListenAddress(LOOPBACK, 0), {}, OPEN).server_close()
    assert backlogs == [128, 128]


def test_for_want_of_a_descriptor_accepting_rests_for_a_twentieth_of_a_second(monkeypatch, clock):
    def exhausted(self):
        raise OSError(errno.EMFILE, "none left")

    monkeypatch.setattr(server, "time", clock)
    monkeypatch.setattr(socket.socket, "accept", exhausted)
    with (
        WebServer(ListenAddress(LOOPBACK, 0), {}, OPEN) as served,
        pytest.raises(OSError, match="none left"),
    ):
        served.get_request()
    assert clock.slept == [0.05]


def test_who_is_turned_away_is_let_go_after_half_a_second(monkeypatch, clock):
    monkeypatch.setattr(refusals, "time", clock)
    turned_away = refusals.Refusals()
    near, far = socket.socketpair()
    with far:
        turned_away.add(near)
        clock.now += 0.49
        turned_away.sweep()
        assert near.fileno() != -1
        clock.now += 0.02
        turned_away.sweep()
        assert near.fileno() == -1


def test_32_connections_that_were_turned_away_stay_open():
    turned_away = refusals.Refusals()
    with contextlib.ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(33)]
        for near, far in pairs:
            stack.enter_context(far)
            turned_away.add(near)
        assert [near.fileno() != -1 for near, _ in pairs] == [False, *[True] * 32]
        turned_away.close()


@pytest.mark.parametrize(("size", "status"), [(1023, None), (1024, 431)])
def test_the_head_of_a_liveness_request_has_1024_bytes_at_most(unstarted, size, status):
    assert unstarted.server._status(b"G" * size) == status


def test_64_kibibytes_are_taken_of_what_who_is_turned_away_has_sent():
    near, far = socket.socketpair()
    for size in (far, near):
        size.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    with far, near.dup() as still_open:
        far.sendall(b"x" * 65_537)
        turned_away = refusals.Refusals()
        turned_away.add(near)
        turned_away._close_oldest()
        assert still_open.recv(9) == b"x"


def test_threads_share_two_arenas_and_freed_blocks_go_back_from_128_kibibytes_on(monkeypatch):
    asked = []
    library = SimpleNamespace(mallopt=lambda *pair: asked.append(pair) or 1)
    monkeypatch.setattr(memory_arenas.ctypes, "CDLL", lambda name: library)
    assert memory_arenas.limit_arenas()
    # M_ARENA_MAX, M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h.
    assert asked == [(-8, 2), (-1, 131_072), (-3, 131_072)]


def test_a_handshake_has_ten_seconds(tmp_path):
    Authority(tmp_path).sign("server")
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config: {cert_file: server.crt, key_file: server.key}\n")
    near, far = socket.socketpair()
    with Serving(config_file=config) as serving, Recorded(near) as connection:
        far.close()  # the handshake ends at once
        slot = serving.server._slots.acquire("10.0.0.1", connection)
        assert not serving.server._secure(slot, ("10.0.0.1", 1))
        slot.connection.close()
        assert connection.timeouts[0] == 10.0


@pytest.mark.parametrize(("size", "taken"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_a_watched_file_has_a_mebibyte_at_most(tmp_path, size, taken):
    path = tmp_path / "secret"
    path.touch()
    os.truncate(path, size)
    if taken:
        assert len(read_bounded(path)) == size
        return
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        read_bounded(path)


class Busy:
    """A lock that is never free, and knows for how long it was waited for."""

    def __init__(self):
        self.waits = []

    def acquire(self, timeout):
        self.waits.append(timeout)
        return False


def test_a_file_that_does_not_answer_is_waited_for_until_two_seconds_are_over(monkeypatch, clock):
    monkeypatch.setattr(watched_files, "time", clock)
    watched = Watched(lambda: 1, ())
    watched._lock, watched._reading_since = Busy(), clock.now
    for passed in (0.0, 1.5, 3.0):
        watched._reading_since = clock.now - passed
        with pytest.raises(ValueError, match="no response within 2 s"):
            watched.current()
    assert watched._lock.waits == [2.0, 0.5, 0.0]
