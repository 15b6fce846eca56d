"""Asking a worker server that may be anything: it costs a bounded time, and is refused by name."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flight_servers import answer_with, dump, entry, recorder, serving
from rankscope_agent.sources.flight_recorder.failures import FlightError
from rankscope_agent.sources.flight_recorder.worker_server import fetch

MAX_DUMP_BYTES = 4 << 20
MAX_HEAD_BYTES = 16 << 10

LIST = answer_with(json.dumps(["fr_trace_json"]).encode())


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def fetched(directory: int, name: str = "1-2.sock", owner: int | None = None) -> list[bytes]:
    parts: list[bytes] = []
    fetch(directory, name, owner, parts.append, seconds=1.0)
    return parts


def reason(directory: int, name: str = "1-2.sock", owner: int | None = None) -> str:
    with pytest.raises(FlightError) as caught:
        fetched(directory, name, owner)
    return caught.value.reason


@pytest.mark.parametrize("handler", ["fr_trace_json", "dump_nccl_trace_json"])
def test_recorder_of_either_kind_is_fetched(tmp_path: Path, directory: int, handler: str) -> None:
    body = dump(entry(1, 10**18))
    with serving(tmp_path / "1-2.sock", recorder(body, handler)) as requests:
        assert fetched(directory, owner=os.getuid()) == [body]
    assert requests[1].startswith(f"POST /handler/{handler}?includecollectives=true".encode())


def test_server_without_a_recorder_gives_nothing(tmp_path: Path, directory: int) -> None:
    with serving(tmp_path / "1-2.sock", recorder(b"", "another")):
        assert fetched(directory) == []


def test_path_longer_than_the_kernel_takes_is_no_matter(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    descriptor = os.open(deep, os.O_RDONLY | os.O_DIRECTORY)
    body = dump()
    with serving(tmp_path / "short.sock", recorder(body)):
        (tmp_path / "short.sock").rename(deep / "1-2.sock")
        assert fetched(descriptor) == [body]
    os.close(descriptor)


def test_missing_socket_is_said_to_be_missing(directory: int) -> None:
    with pytest.raises(FileNotFoundError):
        fetched(directory)


def test_link_is_not_followed(tmp_path: Path, directory: int) -> None:
    with serving(tmp_path / "real", recorder(dump())) as requests:
        (tmp_path / "1-2.sock").symlink_to(tmp_path / "real")
        assert reason(directory) == "symlink"
    assert requests == []


def test_second_name_of_a_socket_is_not_connected_to(tmp_path: Path, directory: int) -> None:
    with serving(tmp_path / "real", recorder(dump())) as requests:
        (tmp_path / "1-2.sock").hardlink_to(tmp_path / "real")
        assert reason(directory) == "not_socket"
    assert requests == []


def test_file_pipe_and_directory_are_no_sockets(tmp_path: Path, directory: int) -> None:
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert {reason(directory, name) for name in ("file", "pipe", "folder")} == {"not_socket"}


def test_socket_of_another_user_is_refused(tmp_path: Path, directory: int) -> None:
    with serving(tmp_path / "1-2.sock", recorder(dump())) as requests:
        assert reason(directory, owner=os.getuid() + 1) == "owner"
    assert requests == []


def test_socket_that_nobody_listens_on_is_refused(tmp_path: Path, directory: int) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "1-2.sock"))
    assert reason(directory) == "refused"


def test_server_that_never_accepts_costs_its_time(tmp_path: Path, directory: int) -> None:
    """A process that is stopped, or a listener that forked children keep open."""
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(str(tmp_path / "1-2.sock"))
        listener.listen(0)
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting.connect(str(tmp_path / "1-2.sock"))
        assert reason(directory) == "timeout"


def hang(connection: socket.socket, request: bytes) -> None:
    connection.recv(1)


def drip(connection: socket.socket, request: bytes) -> None:
    """Send a whole answer a byte at a time, each well within any timeout of a single read."""
    for byte in answer_with(b"[" + b" " * 100):
        connection.sendall(bytes([byte]))
        time.sleep(0.1)


def endless_head(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"x" * MAX_HEAD_BYTES)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (hang, "timeout"),
        (drip, "timeout"),
        (endless_head, "http"),
        (lambda connection, _: connection.sendall(b"\0\xff" * 99 + b"\r\n\r\n"), "http"),
        (lambda connection, _: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "http"),
        (lambda connection, _: connection.sendall(answer_with(b"", "500 Error")), "http"),
        (
            lambda connection, _: connection.sendall(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[]"
            ),
            "http",
        ),
        (lambda connection, _: connection.sendall(LIST[:-3]), "http"),
        (lambda connection, _: connection.sendall(answer_with(b"{no json")), "malformed"),
        (lambda connection, _: connection.sendall(answer_with(b'{"a": 1}')), "malformed"),
        (lambda connection, _: connection.sendall(answer_with(b"[" * 60_000)), "malformed"),
        (
            lambda connection, _: connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"
            ),
            "too_large",
        ),
    ],
)
def test_answer_that_is_none_is_refused(
    tmp_path: Path, directory: int, answer, expected: str
) -> None:
    with serving(tmp_path / "1-2.sock", answer):
        assert reason(directory) == expected


def test_gigabytes_are_not_read(tmp_path: Path, directory: int) -> None:
    sent = []
    before = threading.active_count()

    def flood(connection: socket.socket, request: bytes) -> None:
        if request.startswith(b"GET"):
            connection.sendall(LIST)
            return
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {1 << 31}\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            while True:
                sent.append(connection.send(b"x" * (1 << 20)))

    with serving(tmp_path / "1-2.sock", flood):
        assert reason(directory) == "too_large"
    assert sum(sent) < MAX_DUMP_BYTES
    assert threading.active_count() < before + 10
