"""Agents whose step records are followed: of this version and older ones, and such as hang."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
import time

import numpy as np
import pytest

from counted_work import counted_waits
from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.contract.step_blocks import MEDIA_TYPE
from rankscope_agent.serving.step_blocks import steps_blocks
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.web.routes import JSON_TYPE, Response, Route, sentence
from rankscope_analyzers.intake import step_stream
from rankscope_analyzers.intake.agent_connections import AgentConnections, Answer, Question
from rankscope_analyzers.intake.credentials import NONE
from rankscope_analyzers.intake.step_stream import StepStream
from rankscope_analyzers.intake.step_windows import StepWindows, Writer
from rankscope_analyzers.stragglers.followed_jobs import columns_of
from ring_writer import RingWriter
from running_agent import running_agent
from serving import answering

NOW = 1_700_000_100.0
"""A hundred seconds after rings of tests begin."""

WAIT_SECONDS = 5.0


class Rings:
    """The rings of a node behind the paths of an agent; `asked` are the queries for steps."""

    def __init__(self, folder):
        self.folder = folder
        self.asked = []
        self.cut = False
        folder.mkdir()

    def steps(self, request):
        self.asked.append(dict(request.query))
        since = float(request.query.get("since", ["0"])[0])
        source = RingStepSource(self.folder, self.folder / "none", self.folder.name)
        cursors = request.query.get("after", [""])[0]
        known = dict(part.split(":") for part in cursors.split(",") if part)
        fresh = source.fresh(None, since, {name: int(number) for name, number in known.items()})
        pieces = steps_blocks(fresh, self.folder.name)
        return Response(200, MEDIA_TYPE, self.sent(pieces), compress=not self.cut)

    def sent(self, pieces):
        for number, piece in enumerate(pieces):
            if self.cut and number:
                raise BrokenPipeError("the agent is killed in the middle of its answer")
            yield piece

    def routes(self):
        return {"/api/v1/steps": Route(self.steps, "open")}


@contextlib.contextmanager
def followed(*urls, **more):
    stream = StepStream(NONE, 1800.0, **more)
    try:
        yield lambda: stream.look(urls, NOW, WAIT_SECONDS), stream
    finally:
        stream.connections.close()


def steps_of(stream, job="team/job"):
    if job not in stream.windows.jobs:
        return []
    records = stream.windows.of(job).records()
    return sorted(zip(records["rank"].astype(int), records["step"].astype(int), strict=True))


def test_each_look_gets_what_no_earlier_one_got(tmp_path):
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64, rank=3)
    with answering(rings.routes()) as url, followed(url) as (look, stream):
        writer.step(4)
        assert look().answered == 1
        assert steps_of(stream) == [(3, 0), (3, 1), (3, 2), (3, 3)]
        writer.step(2)
        look()
        assert stream.windows.of("team/job").fresh == 6
        assert steps_of(stream)[-2:] == [(3, 4), (3, 5)]
        look()
        assert len(steps_of(stream)) == 6
        assert [len(query.get("after", ())) for query in rings.asked] == [0, 1, 1]
        assert stream.failures == []
    writer.end()


def test_records_are_those_that_json_tells(tmp_path):
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64, rank=3, dp_group=7, tp_group=1, pp_stage=2)
    writer.step(3)
    source = RingStepSource(rings.folder, rings.folder / "none", "n1")
    with answering(rings.routes()) as url, followed(url) as (look, stream):
        look()
        records = stream.windows.of("team/job").records()
    told = [dict(zip(STEP_COLUMNS, row, strict=True)) for row in source.steps(None, 0.0)]
    for name in set(STEP_COLUMNS) & set(records.columns):
        values = [np.nan if one[name] is None else one[name] for one in told]
        assert records[name].tolist() == values, name
    missing = set(STEP_COLUMNS) - set(records.columns) - {"job_id"}
    assert all(one[name] is None for one in told for name in missing)
    writer.end()


def test_an_answer_that_is_cut_off_moves_no_cursor(tmp_path):
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64)
    with answering(rings.routes()) as url, followed(url) as (look, stream):
        writer.step(2)
        look()
        writer.step(2)
        rings.cut = True
        assert look().answered == 0
        assert "answer" in stream.failures[0]
        rings.cut = False
        look()
        assert [step for _, step in steps_of(stream)] == [0, 1, 2, 3]
        assert stream.failures == []
    writer.end()


def test_a_cursor_that_is_none_of_its_ring_repeats_no_record(tmp_path):
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64)
    with answering(rings.routes()) as url, followed(url) as (look, stream):
        writer.step(3)
        look()
        agent = stream.agents[url]
        agent.cursors = dict.fromkeys(agent.cursors, 10**9)
        writer.step(2)
        look()
        assert [step for _, step in steps_of(stream)] == [0, 1, 2, 3, 4]
    writer.end()


def test_agents_of_this_version_are_followed_over_a_restart(tmp_path):
    (tmp_path / "rings").mkdir()
    writer = RingWriter(tmp_path / "rings", capacity=256)
    writer.step(20)
    with running_agent(tmp_path) as agent, followed(agent.url) as (look, stream):
        look()
        assert len(steps_of(stream)) == 20
        cursors = stream.agents[agent.url].cursors
    writer.step(5)
    with running_agent(tmp_path) as agent, followed(agent.url) as (look, again):
        look()
        assert {name: number + 5 for name, number in cursors.items()} == (
            again.agents[agent.url].cursors
        )
    writer.end()


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


ROW = ("team/job", 0, 3, "old-node", 3, NOW - 50, 0.5, 0.1, 0.2, 0.2, 0, 3, 0, 0, 8, 0, "kernel")


class OldAgent:
    """Sends JSON and knows no cursors, as agents did before there were any."""

    def __init__(self):
        self.asked = []
        self.steps = 2

    def answer(self, request):
        self.asked.append(dict(request.query))
        if "after" in request.query:
            return sentence(400, "Unknown query parameter; this path takes job and since.")
        since = float(request.query["since"][0])
        rows = [(ROW[0], step, *ROW[2:5], ROW[5] + step, *ROW[6:]) for step in range(self.steps)]
        told = [row for row in rows if row[5] >= since]
        columns = STEP_COLUMNS[: len(ROW)]
        body = {"node": "old-node", "columns": columns, "rows": told, "truncated": False}
        return Response(200, JSON_TYPE, json.dumps(body).encode())

    def ranks(self, request):
        rank = {"job_id": "team/job", "rank": 3, "world_size": 8, "alive": True}
        body = json.dumps({"node": "old-node", "ranks": [rank]}).encode()
        return Response(200, JSON_TYPE, body)

    def routes(self):
        return {
            "/api/v1/steps": Route(self.answer, "open"),
            "/api/v1/ranks": Route(self.ranks, "open"),
        }


def test_an_older_agent_is_asked_from_its_newest_record_on():
    old = OldAgent()
    with answering(old.routes()) as url, followed(url) as (look, stream):
        look()
        old.steps = 4
        look()
        look()
        assert steps_of(stream) == [(3, 0), (3, 1), (3, 2), (3, 3)]
        assert [float(query["since"][0]) for query in old.asked] == [
            NOW - 1800.0, NOW - 49.0, NOW - 47.0,
        ]  # fmt: skip
        records = stream.windows.of("team/job").records()
        assert records["timing_source"].tolist() == ["kernel"] * 4
        assert records["node"].tolist() == ["old-node"] * 4
        (ring,) = stream.agents[url].rings
        assert ring.rank["world_size"] == 8


def test_an_agent_that_is_replaced_by_an_older_one_is_followed_on(tmp_path):
    rings, old = Rings(tmp_path / "n1"), OldAgent()
    writer = RingWriter(rings.folder, capacity=64)
    writer.step(2)
    routes = {**old.routes(), **rings.routes()}
    chosen = {"now": rings.steps}
    routes["/api/v1/steps"] = Route(lambda request: chosen["now"](request), "open")
    with answering(routes) as url, followed(url) as (look, stream):
        look()
        chosen["now"] = old.answer
        look()
        assert "400" in stream.failures[0]
        look()
        assert stream.failures == []
        assert (3, 1) in steps_of(stream)
    writer.end()


def test_ranks_that_speak_for_another_namespaces_job_are_left_out():
    rank = {"job_id": "team/job", "rank": 3, "pod_namespace": "other", "pod_uid": "u"}

    class Foreign(OldAgent):
        def ranks(self, request):
            body = json.dumps({"node": "n", "ranks": [rank]}).encode()
            return Response(200, JSON_TYPE, body)

    with answering(Foreign().routes()) as url, followed(url) as (look, stream):
        look()
        look()
        before = len(steps_of(stream))
        look()
        assert len(steps_of(stream)) == before
        assert "are not believed" in str(stream.notes)


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


def numbers(count, start=0.0):
    return {"step": np.arange(count) + start, "t_start_unix_seconds": np.arange(count) + start}


def test_windows_keep_the_newest_records_and_share_the_room():
    windows = StepWindows(100.0, most_records=60)
    for look in range(10):
        for name, count in (("a/small", 2), ("b/large", 20)):
            window = windows.of(name)
            rank = window.number(Writer(0, "n", 0, 0, 0, 0))
            window.add(float(look), np.full(count, rank), numbers(count, look * 100.0))
            window.taken()
        windows.trim(float(look))
    assert len(windows.of("a/small")) == 20
    assert len(windows.of("b/large")) == 40
    assert windows.of("b/large").records()["step"].iloc[-1] == 919.0


def test_fresh_records_are_not_dropped_and_old_jobs_are():
    windows = StepWindows(100.0, most_records=10)
    window = windows.of("a/b")
    window.add(
        0.0, np.zeros(30, dtype=np.int64) + window.number(Writer(0, "n", 0, 0, 0, 0)), numbers(30)
    )
    windows.trim(1000.0)
    assert len(window.fresh_table()) == 30
    window.taken()
    windows.trim(1000.0)
    assert windows.jobs == {}


def test_too_many_fresh_records_leave_those_of_the_newest_steps_of_all_ranks():
    window = StepWindows(1000.0).of("a/b")
    rank, other = (window.number(Writer(one, "n", 0, 0, 0, 0)) for one in (0, 1))
    window.add(0.0, np.full(5, rank), numbers(5))
    window.taken()
    for one in (rank, other):
        window.add(1.0, np.full(10, one), numbers(10, 100.0))
    window.add(1.0, np.array([rank]), {"step": np.array([7.0])})
    assert window.drop_fresh(21, 12) == 0
    assert window.drop_fresh(6, 12) == 15
    assert window.fresh == 6
    assert len(window) == 11
    fresh = window.fresh_table().numbers
    assert sorted(zip(fresh["rank"], fresh["step"], strict=True)) == [
        (one, step) for one in (0.0, 1.0) for step in (107.0, 108.0, 109.0)
    ]
    assert window.records()["step"].iloc[:5].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert window.drop_fresh(0, 12) == 6
    assert len(window.fresh_table()) == 0


def test_fresh_records_of_too_many_steps_leave_those_of_the_newest_steps():
    window = StepWindows(1000.0).of("a/b")
    rank, other = (window.number(Writer(one, "n", 0, 0, 0, 0)) for one in (0, 1))
    assert (window.fresh_steps(), window.drop_fresh(0, 0)) == (0, 0)
    for one in (rank, other):
        window.add(1.0, np.full(10, one), numbers(10, 100.0))
    assert window.fresh_steps() == 10
    assert window.drop_fresh(20, 10) == 0
    assert window.drop_fresh(20, 3) == 14
    assert sorted(set(window.fresh_table().numbers["step"])) == [107.0, 108.0, 109.0]
    assert window.fresh_steps() == 3


def test_fresh_records_are_judged_as_those_of_a_frame_are():
    """Of two nodes, of which one times its kernels and names a source that nobody knows."""
    window = StepWindows(1000.0).of("a/b")
    writers = [window.number(Writer(one, f"n{one % 2}", 0, 0, one, 0)) for one in (0, 1, 2)]
    timings = [window.timing(name) for name in ("invented", "kernel")]
    for writer, timing in zip(writers, (*timings, np.nan), strict=True):
        window.add(1.0, np.full(4, writer), {**numbers(4), "timing": np.full(4, timing)})
    window.add(1.0, np.full(2, writers[0]), numbers(2, 50.0))
    found, expected = window.fresh_table(), columns_of(window.records())
    assert found.numbers.keys() == expected.numbers.keys()
    for name, values in expected.numbers.items():
        np.testing.assert_array_equal(found.numbers[name], values, err_msg=name)
    assert found.numbers["timing_source"].tolist() == [0] * 4 + [1] * 4 + [0] * 6
    assert [found.node_names[one] for one in found.node] == [
        expected.node_names[one] for one in expected.node
    ]


def test_columns_that_nobody_measures_take_no_room():
    window = StepWindows(100.0).of("a/b")
    rank = np.full(3, window.number(Writer(5, "n", 1, 0, 5, 0)))
    window.add(0.0, rank, numbers(3) | {"samples": np.full(3, np.nan)})
    window.add(1.0, rank, numbers(3) | {"samples": np.full(3, 8.0)})
    records = window.records()
    assert records["samples"].isna().tolist() == [True] * 3 + [False] * 3
    assert records["rank"].tolist() == [5.0] * 6
    assert "sync_seconds" not in records


@pytest.mark.parametrize("size", [1, 3])
def test_a_job_of_many_nodes_is_put_together(tmp_path, size):
    nodes = [Rings(tmp_path / f"n{number}") for number in range(size)]
    writers = [RingWriter(one.folder, rank=rank) for rank, one in enumerate(nodes)]
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(answering(one.routes())) for one in nodes]
        look, stream = stack.enter_context(followed(*urls))
        for writer in writers:
            writer.step(2)
        look()
        assert steps_of(stream) == [(rank, step) for rank in range(size) for step in range(2)]
        assert {ring.rank["rank"] for one in stream.agents.values() for ring in one.rings} == set(
            range(size)
        )
    for writer in writers:
        writer.end()
