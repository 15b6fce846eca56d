"""Heads of requests are bounded as a whole, whatever they are made of, before all else."""

from __future__ import annotations

import contextlib
import io
import re
import socket
import ssl

import pytest

from rankscope_agent.web.request_head import HeadTooLargeError, RequestHeads
from serving import LOOPBACK, PATIENCE_SECONDS, Serving
from test_web_limits import tls_of

READ_BYTES = 4096
MAX_HEAD_BYTES = 16384
GET = b"GET /metrics HTTP/1.1\r\nHost: a\r\n"
TOKEN = "correct-horse-battery-staple"
BIG = {
    "one long line": GET + b"X: " + b"a" * 20_000 + b"\r\n\r\n",
    "many short lines": GET + b"A: b\r\n" * 3_000 + b"\r\n",
    "lines of 65,000 bytes": GET + (b"X: " + b"a" * 65_000 + b"\r\n") * 6 + b"\r\n",
    "a folded line": GET + b"X: a\r\n" + b" b\r\n" * 5_000 + b"\r\n",
    "a long address": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    "no end of a line": b"a" * 20_000,
    "carriage returns": GET + b"\r" * 20_000 + b"\r\n\r\n",
    "HTTP/0.9": b"GET /" + b"a" * 20_000 + b"\r\n\r\n",
    "HTTP/0.9 with headers": b"GET /metrics\r\n" + b"A: b\r\n" * 3_000 + b"\r\n",
    "HTTP/1.0": b"GET /metrics HTTP/1.0\r\n" + b"A: b\r\n" * 3_000 + b"\r\n",
    "chunked": GET + b"Transfer-Encoding: chunked\r\n" + b"A: b\r\n" * 3_000 + b"\r\n0\r\n\r\n",
    "behind another": GET + b"\r\n" + GET + b"A: b\r\n" * 3_000 + b"\r\n",
}


def head_of(size):
    """Return a whole head of so many bytes."""
    start = GET + b"X: "
    return start + b"a" * (size - len(start) - 4) + b"\r\n\r\n"


def conversation(connection, request):
    """Send all, and return all that comes until the server closes."""
    connection.sendall(request)
    return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture(scope="module", params=["http", "https"])
def opened(request, tmp_path_factory):
    """Serve with and without TLS; give a function that connects."""
    folder = tmp_path_factory.mktemp("heads")
    (folder / "tokens").write_text(TOKEN)
    settings, context = tls_of(folder) if request.param == "https" else ({}, None)

    def connect():
        plain = socket.create_connection((LOOPBACK, serving.port), PATIENCE_SECONDS)
        return context.wrap_socket(plain, server_hostname=LOOPBACK) if context else plain

    with Serving(token_file=folder / "tokens", **settings) as serving:
        yield connect


@pytest.mark.parametrize("kind", BIG)
def test_a_head_beyond_the_bound_is_a_431_whatever_it_is_made_of(opened, kind):
    with opened() as connection:
        answers = conversation(connection, BIG[kind])
    statuses = re.findall(rb"HTTP/1\.1 (\d+)", answers)
    assert statuses == ([b"200", b"431"] if kind == "behind another" else [b"431"])
    assert answers.endswith(b"The head of a request may have at most 16384 bytes.\n")
    assert b"Connection: close" in answers


@pytest.mark.parametrize(("more", "status"), [(0, b"200"), (1, b"431")])
def test_the_bound_is_of_the_whole_head(opened, more, status):
    with opened() as connection:
        connection.sendall(head_of(MAX_HEAD_BYTES + more))
        assert connection.recv(12) == b"HTTP/1.1 " + status


def test_the_bound_comes_before_the_question_who_is_there(opened):
    lines = b"GET /api/v1/steps HTTP/1.1\r\nAuthorization: Bearer %s\r\n"
    with opened() as connection:
        connection.sendall(lines % b"no-token-of-this-file" + b"\r\n")
        assert connection.recv(12) == b"HTTP/1.1 401"
    with opened() as connection:
        answer = conversation(connection, lines % (b"a" * 20_000) + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 431")


def test_each_head_of_a_connection_has_the_bound_for_itself(opened):
    with opened() as connection:
        last = GET + b"Connection: close\r\n\r\n"
        answers = conversation(connection, head_of(MAX_HEAD_BYTES) * 3 + last)
    assert answers.count(b"HTTP/1.1 200") == 4
    assert answers.count(b"\nmetrics\n") == 4


def test_a_head_that_comes_byte_by_byte_is_answered(opened):
    with opened() as connection:
        if not isinstance(connection, ssl.SSLSocket):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(len(GET)):
            connection.sendall(GET[number : number + 1])
        connection.sendall(b"\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_a_body_is_no_head(opened):
    body = b"GET /healthz HTTP/1.1\r\n\r\n"
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for field, sent in ((b"Transfer-Encoding: chunked", chunked), (b"Content-Length: 26", body)):
        with opened() as connection:
            answers = conversation(connection, GET + field + b"\r\n\r\n" + sent)
        assert answers.count(b"HTTP/1.1 ") == 1
        assert b"Connection: close" in answers


def test_a_peer_that_leaves_in_the_middle_of_a_head_is_not_answered(opened):
    with opened() as connection:
        connection.sendall(GET)
        if isinstance(connection, ssl.SSLSocket):
            with contextlib.suppress(ssl.SSLError, OSError):
                connection.unwrap()
        else:
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""


class Endless(io.RawIOBase):
    """A peer that never ends a head, and counts what is taken of it."""

    taken = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        buffer[:] = b"a" * len(buffer)
        self.taken += len(buffer)
        return len(buffer)


def test_no_more_is_read_than_a_head_may_have():
    peer = Endless()
    with pytest.raises(HeadTooLargeError):
        RequestHeads(peer).next()
    assert peer.taken == MAX_HEAD_BYTES


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\n\n", b"\n\r\n"])
def test_a_head_ends_with_its_empty_line_wherever_packets_end(end):
    for size in range(READ_BYTES - 5, READ_BYTES + 5):
        head = b"a" * (size - len(end)) + end
        heads = RequestHeads(stream(head + b"rest\n\n"))
        assert [heads.next(), heads.next(), heads.next()] == [head, b"rest\n\n", b""]


def stream(content):
    """Return a raw stream of some bytes."""
    left = io.BytesIO(content)

    class Raw(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            return left.readinto(buffer)

    return Raw()


@pytest.mark.parametrize("first", [b"\r\n", b"\n"])
def test_an_empty_line_in_front_is_a_head_of_its_own(first):
    heads = RequestHeads(stream(first + GET + b"\r\n"))
    assert [heads.next(), heads.next()] == [first, GET + b"\r\n"]
