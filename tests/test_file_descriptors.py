"""Descriptors: how many there are, who may keep how many, and what comes when none is left."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import selectors
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.settings.file_descriptors import SHARES, share
from rankscope_agent.sources.host.collector import HostCollector
from rankscope_agent.sources.kernel_files import names_in, read_number, read_text
from rankscope_agent.sources.nccl_inspector.follower import file_limit
from rankscope_agent.sources.nccl_log.follower import stream_limit
from rankscope_agent.sources.netdev.collector import interface_limit
from rankscope_agent.sources.netdev.counters import InterfaceFiles
from rankscope_agent.sources.netdev.interfaces import Interface
from rankscope_agent.sources.training.follower import FILES_PER_RING, ring_limit
from rankscope_agent.web.access import OPEN
from rankscope_agent.web.health import HealthServer
from rankscope_agent.web.server import WebServer
from running_agent import COMMAND, HEALTH, PATIENCE_SECONDS, running_agent
from test_agent_process import until

WEB = 64 + 64 + 32  # connections, those that end, and refusals
LIVENESS = 64 + 64
SPARE = 16  # standard streams, listening sockets, and what is open for a moment


@pytest.mark.parametrize("limit", [1024, 4096, 16_384, 1 << 20, resource.RLIM_INFINITY])
def test_all_that_may_be_kept_open_at_once_is_less_than_there_is(monkeypatch, limit):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    kept = {
        "training": FILES_PER_RING * ring_limit(),
        "rdma": share("rdma"),
        "nccl_log": 6 * stream_limit(),
        "nccl_inspector": file_limit(),
        "netdev": 1 * interface_limit(),
        "web": WEB,
        "liveness": LIVENESS,
    }
    assert set(kept) == {*SHARES, "web", "liveness"}
    assert sum(kept.values()) + SPARE <= (limit if limit > 0 else 16_384)
    assert min(kept.values()) > 0


def test_with_what_is_wanted_no_source_has_to_do_with_less(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (16_384, 16_384))
    assert (ring_limit(), stream_limit(), file_limit()) == (1024, 256, 256)
    assert interface_limit() == 32


def test_ninety_descriptors_hold_the_nine_files_of_ten_interfaces(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (900, 900))
    assert share("netdev") == 90
    assert interface_limit() == 10


def test_sources_have_their_shares_of_a_thousand_descriptors(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 1000))
    assert {source: share(source) for source in SHARES} == {
        "rdma": 200,
        "training": 250,
        "nccl_log": 100,
        "netdev": 100,
        "nccl_inspector": 50,
    }


def test_the_agent_raises_its_own_limit_as_far_as_it_may(tmp_path):
    lowered = ("sh", "-c", 'ulimit -Sn 256; ulimit -Hn 5000; exec "$@"', "sh", *COMMAND)
    flags = ("--no-collector.rdma",)
    with running_agent(tmp_path, *flags, command=lowered) as agent:
        assert resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE) == (5000, 5000)


@pytest.mark.parametrize("attacked", ["pages", "liveness"])
def test_an_agent_without_a_descriptor_left_goes_on_answering(tmp_path, attacked):
    with running_agent(tmp_path, HEALTH) as agent, contextlib.ExitStack() as stack:
        until(agent, "/readyz", "Every collector has had its first run.")
        open_now = Path(f"/proc/{agent.process.pid}/fd").iterdir()
        few = max(int(descriptor.name) for descriptor in open_now) + 10
        resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (few, few))
        url = urlsplit(agent.url if attacked == "pages" else agent.health_url)
        for number in range(60):
            source = (f"127.0.0.{2 + number % 4}", 0)
            silent = socket.create_connection((url.hostname, url.port), 20, source_address=source)
            stack.enter_context(silent)
            if number % 12 == 11:
                found = agent.get("/healthz") if attacked == "pages" else agent.liveness()
                assert found == 200 or '"status"' in found


class Exhausted:
    """A listening socket for whose next connection there is no descriptor."""

    def __init__(self, listening):
        self._listening = listening
        self.failures = 0

    def accept(self):
        self.failures += 1
        raise OSError(errno.EMFILE, "Too many open files")

    def __getattr__(self, name):
        return getattr(self._listening, name)


def test_who_cannot_accept_pauses_and_lets_one_silent_connection_go(monkeypatch):
    pauses = []
    monkeypatch.setattr("rankscope_agent.web.server.time.sleep", pauses.append)
    with WebServer(ListenAddress("127.0.0.1", 0), {}, OPEN) as server:
        (near, far), (newer, other) = socket.socketpair(), socket.socketpair()
        with near, far, newer, other:
            server._slots.acquire("10.0.0.1", near)
            server._slots.acquire("10.0.0.1", newer)
            plain, server.socket = server.socket, Exhausted(server.socket)
            server._handle_request_noblock()
            far.settimeout(PATIENCE_SECONDS)
            assert far.recv(1) == b""
            assert len(pauses) == server.socket.failures == 1
            server.socket = plain


class Pauses:
    """An event that is asked to wait, and does not."""

    def __init__(self):
        self.asked = []

    def wait(self, seconds):
        self.asked.append(seconds)


def test_who_cannot_accept_a_probe_pauses_and_lets_one_silent_connection_go():
    server = HealthServer(ListenAddress("127.0.0.1", 0), lambda: True)
    (near, far), (newer, other) = socket.socketpair(), socket.socketpair()
    with near, far, newer, other, server._listening:
        server._slots.acquire("10.0.0.1", near)
        server._slots.acquire("10.0.0.1", newer)
        plain, server._listening = server._listening, Exhausted(server._listening)
        server._stop = Pauses()
        server._accept(selectors.DefaultSelector())
        far.settimeout(PATIENCE_SECONDS)
        assert far.recv(1) == b""
        assert (server._stop.asked, server._listening.failures) == ([0.05], 1)
        server._listening = plain


@contextlib.contextmanager
def no_descriptor_left():
    """Lower this process' limit so that it can open nothing until the block ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)  # all below are taken
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_cannot_be_looked_at_is_not_said_to_be_absent(tmp_path):
    (tmp_path / "number").write_text("7\n")
    for look in (
        lambda: read_text(tmp_path / "number"),
        lambda: read_number(tmp_path / "number"),
        lambda: names_in(tmp_path, 10),
    ):
        with pytest.raises(OSError, match="Too many open files"), no_descriptor_left():
            look()
    assert read_number(tmp_path / "number") == 7


def test_a_node_that_cannot_be_looked_at_is_not_called_empty(tmp_path):
    collector = HostCollector(
        Path("/proc"), tmp_path, tmp_path, tuple, lambda: 1000.0, whole_node=True
    )
    with pytest.raises(OSError, match="Too many open files"), no_descriptor_left():
        collector.collect()
    assert collector.collect()


def test_an_interfaces_files_are_read_again_once_there_are_descriptors(tmp_path):
    (tmp_path / "operstate").write_text("up\n")
    files = InterfaceFiles(Interface("eth0", tmp_path, "hardware", "", rdma=False))
    with pytest.raises(OSError, match="Too many open files"), no_descriptor_left():
        list(files.samples(None))
    assert [sample.value for sample in files.samples(None)] == [1]
    files.close()
