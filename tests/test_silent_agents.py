"""Agents that hang, answer late, send much or cannot be reached, and hold up no others."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time

import pytest

from counted_work import counted_waits
from rankscope_agent.web.routes import Route
from rankscope_analyzers.intake import step_stream
from rankscope_analyzers.intake.credentials import NONE
from rankscope_analyzers.intake.step_stream import StepStream
from ring_writer import RingWriter
from serving import answering
from step_agents import NOW, WAIT_SECONDS, Rings, followed, steps_of


@contextlib.contextmanager
def hanging():
    """Listen, take requests, and say nothing."""
    released = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1000)
            released.wait(60)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            released.set()
            server.shutdown()
            thread.join()


def test_a_server_that_hangs_ends_with_a_test_that_fails():
    before = threading.active_count()
    with pytest.raises(AssertionError, match="as a test fails"), hanging():
        raise AssertionError("as a test fails")
    assert threading.active_count() == before


def test_an_agent_that_hangs_delays_nobody_else_from_the_second_look_on(tmp_path, monkeypatch):
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64)
    with answering(rings.routes()) as url, hanging() as silent:
        stream = StepStream(NONE, 1800.0)
        stream.look((url, silent), NOW, 0.3)
        assert stream.failures == [f"agent {silent} does not answer in time"]
        writer.step(2)
        waits = counted_waits(monkeypatch)
        found = stream.look((url, silent), NOW, 30.0)
        assert found.answered == 1
        assert len(steps_of(stream)) == 2
        stream.connections.close()
    assert set(waits) == {1}
    writer.end()


def answered(stream):
    """Wait until nobody who was asked owes an answer."""
    connections, until = stream.connections, time.monotonic() + WAIT_SECONDS
    while connections.asked - connections.answered and time.monotonic() < until:
        connections.idle(0.02)


def test_an_agent_that_answered_after_a_look_is_asked_again_at_the_next_one(tmp_path):
    rings, released = Rings(tmp_path / "n1"), threading.Event()
    writer = RingWriter(rings.folder, capacity=64)

    def late(request):
        released.wait(30)
        return rings.steps(request)

    with answering({"/api/v1/steps": Route(late, "open")}) as url:
        stream = StepStream(NONE, 1800.0)
        writer.step(2)
        assert stream.look((url,), NOW, 0.2).answered == 0
        released.set()
        answered(stream)
        assert stream.look((url,), NOW, WAIT_SECONDS).answered == 1
        answered(stream)
        assert ["after" in query for query in rings.asked] == [False, True]
        stream.connections.close()
    writer.end()


def test_agents_that_hang_take_nobody_elses_place(tmp_path, monkeypatch):
    monkeypatch.setattr(step_stream, "NEWCOMERS", 2)
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64)
    writer.step(2)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(hanging()) for _ in range(3)]
        url = stack.enter_context(answering(rings.routes()))
        stream = StepStream(NONE, 1800.0)
        for _ in range(4):
            stream.look((*silent, url), NOW, 0.3)
        assert not stream.has_newcomers
        assert steps_of(stream) == [(0, 0), (0, 1)]
        stream.connections.close()
    writer.end()


def test_an_agent_that_sent_many_rows_is_asked_later_and_the_others_as_before(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(step_stream, "ROWS_PER_SECOND", 0.02)
    monkeypatch.setattr(step_stream, "MANY_ROWS", 4)
    with contextlib.ExitStack() as stack:
        busy, quiet = Rings(tmp_path / "busy"), Rings(tmp_path / "quiet")
        RingWriter(busy.folder, rank=0).step(5)
        RingWriter(quiet.folder, rank=1).step(4)
        urls = [stack.enter_context(answering(one.routes())) for one in (busy, quiet)]
        stream = StepStream(NONE, 1000.0)
        for _ in range(3):
            stream.look(urls, NOW, WAIT_SECONDS)
        assert (len(busy.asked), len(quiet.asked)) == (1, 3)
        stream.agents[urls[0]].retry = 0.0
        stream.look(urls, NOW, WAIT_SECONDS)
        assert len(busy.asked) == 2
        stream.connections.close()


def test_an_agent_that_cannot_be_reached_is_said_and_asked_again(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with followed(url) as (look, stream):
            look()
            assert "cannot be reached" in stream.failures[0]
            assert stream.agents[url].failures == 1
            look()
            assert stream.agents[url].failures == 2
            assert stream.agents[url].retry > time.monotonic()


def test_a_careful_reader_asks_a_silent_address_only_after_it_was_listed_again(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with followed(url, cautious=True) as (look, stream):
            for _ in range(3):
                look()
            assert stream.agents[url].failures == 1
            stream.renew()
            look()
            assert stream.agents[url].failures == 2
