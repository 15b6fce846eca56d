"""Limits of what agents are asked and answer about steps, and about jobs that stand."""

from __future__ import annotations

import asyncio
import io
import math
import zlib
from types import SimpleNamespace

import pytest

from rankscope_agent.contract import step_blocks as form
from rankscope_analyzers.intake import (
    agent_connections,
    agent_evidence,
    collective_windows,
    left_out,
    local_pages,
    step_columns,
    step_stream,
    stream_health,
)
from rankscope_analyzers.intake.agent_client import AgentError
from rankscope_analyzers.intake.agent_connections import AgentConnections, Question, _Connection
from rankscope_analyzers.intake.credentials import CredentialsError, Entry
from rankscope_analyzers.intake.followed_agent import FollowedAgent, Route
from rankscope_analyzers.intake.step_stream import StepStream
from rankscope_analyzers.intake.step_windows import JobWindow, StepWindows


class Agent:
    """Answers each question alike, and notes how much of an answer it may give, and by when."""

    url = node = "n0"

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def json(self, path, most=None, seconds=None):
        self.asked.append((most, seconds))
        return self.answer


@pytest.fixture
def pools(monkeypatch):
    """Sizes of the pools of threads that are made."""
    sizes = []

    class Pool:
        def __init__(self, size):
            sizes.append(size)

        def map(self, function, values):
            return [function(one) for one in values]

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    for module in (agent_evidence, collective_windows):
        monkeypatch.setattr(module, "ThreadPoolExecutor", Pool)
    return sizes


def test_parts_of_evidence_have_32_mib_what_was_kept_80_and_25_seconds(pools):
    agent = Agent({"node": "n0", "hangs": [{"id": "1"}], "hang": {"job_id": "job"}})
    agent_evidence.part([agent], "job", "ras")
    assert agent_evidence.kept([agent], "job") == {"n0": {"job_id": "job"}}
    assert agent.asked == [(32 << 20, 25.0), (32 << 20, None), (80 << 20, 25.0)]
    assert pools == [32, 32]


@pytest.mark.parametrize(
    ("nodes", "seconds"), [(1, 900.0), (100, 900.0), (150, 600.0), (1500, 60.0)]
)
def test_3000_seconds_of_collectives_are_compared_in_a_second(nodes, seconds):
    assert collective_windows.length_of_windows(nodes, 30.0) == seconds
    assert collective_windows.COMPARISON_SECONDS == 30.0


@pytest.mark.parametrize(("length", "asked"), [(59.9, 0), (60.0, 1)])
def test_collectives_of_less_than_a_minute_are_not_looked_at(pools, monkeypatch, length, asked):
    agent = Agent({"windows": []})
    known = SimpleNamespace(newest=lambda url: {0: 1000.0})
    collective_windows.windows_by_job([agent], None, 0.0, length, known, None)
    assert agent.asked == [(512 << 20, 60.0)] * asked
    assert pools == [32] * asked
    monkeypatch.setattr(collective_windows, "lacks_sync", lambda records: True)
    assert len(list(collective_windows.unread(None, 9, length))) == 1 - asked


@pytest.mark.parametrize(("behind", "since"), [(120.0, 880.0), (121.0, 1000.0)])
def test_a_rank_two_minutes_behind_is_waited_for(behind, since):
    agent = FollowedAgent(newest={"a": 1000.0, "b": 1000.0 - behind})
    assert agent.since(0.0) == since


class Columns(SimpleNamespace):
    """An answer of so many rows."""

    def __len__(self):
        return self.rows


def columns(rings=(), timings=(), rows=0):
    return Columns(
        rings=rings,
        timing_sources=timings,
        in_blocks=False,
        left_out={},
        unread={},
        head=None,
        rows=rows,
    )


def test_1024_rings_and_16_names_of_timing_sources_of_an_agent_are_known():
    agent = FollowedAgent()
    rings = [SimpleNamespace(name=f"{number:016x}") for number in range(1100)]
    agent.take(columns(rings), 0.0, 0.0)
    assert [int(one.name, 16) for one in agent.rings] == list(range(76, 1100))
    route = Route.of("job", (), 0)
    route.lead_to(JobWindow(), columns(timings=[f"t{number}" for number in range(20)]), None)
    assert len(route.timings) == 16 + 1


@pytest.mark.parametrize(("failures", "least"), [(1, 0.0), (2, 10.0), (3, 20.0), (9, 60.0)])
def test_an_agent_that_fails_is_asked_again_after_ten_seconds_to_a_minute(
    monkeypatch, failures, least
):
    monkeypatch.setattr(step_stream, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    agent = FollowedAgent()
    assert agent.retry <= 0.0
    for _ in range(failures):
        step_stream._note_failure(agent, "http://a", AgentError("no"))
    turn = 1.0 + zlib.crc32(b"http://a") % 100 / 200
    assert agent.retry == pytest.approx(1000.0 + least * turn)


@pytest.mark.parametrize(("rows", "pause"), [(20_000, 0.0), (20_001, 5.00025)])
def test_an_agent_of_twenty_thousand_new_records_is_left_alone_for_a_while(
    monkeypatch, rows, pause
):
    clock = SimpleNamespace(monotonic=lambda: 1000.0, time=lambda: 1000.0)
    monkeypatch.setattr(step_stream, "time", clock)
    stream = StepStream(Entry(), 900.0)
    agent = stream.agents["a"] = FollowedAgent(in_blocks=True)
    found = columns(agent.rings, rows=rows)
    monkeypatch.setattr(stream, "_columns", lambda *_: (found, ()))
    stream._read("a", (), 1000.0)
    assert agent.retry == (pytest.approx(1000.0 + pause) if pause else -math.inf)
    stream.connections.close()


def test_128_agents_are_asked_for_the_first_time_at_once():
    stream = StepStream(Entry(), 900.0)
    stream.agents = {f"http://n{number}": FollowedAgent() for number in range(129)}
    assert len(list(stream._questions(0.0))) == 128
    stream.agents["http://n0"] = FollowedAgent(in_blocks=True)
    assert len(list(stream._questions(0.0))) == 129
    stream.connections.close()


def test_answers_of_steps_have_96_mib_and_others_64():
    newcomer, known = FollowedAgent(), FollowedAgent(in_blocks=False)
    questions = step_stream._of_newcomer(0.0, {})
    assert [one.most_bytes for one in questions] == [96 << 20] * 2
    questions = step_stream._of_known(known, 0.0, {})
    assert [one.most_bytes for one in questions] == [64 << 20, 96 << 20]
    assert newcomer.failures == 0


@pytest.mark.parametrize(("passed", "state"), [(60.0, "new"), (60.1, "silent")])
def test_an_agent_is_silent_after_a_minute(passed, state):
    assert stream_health._state(FollowedAgent(answered=0.0), False, passed) == state


def test_three_halves_of_a_mebi_of_records_are_kept():
    assert StepWindows(900.0)._most == 1_572_864


def test_4096_ranks_that_an_answer_lacks_are_named():
    listed = [{"job_id": "j", "rank": n, "until_unix_seconds": 1.0} for n in range(4097)]
    assert len(left_out.read(listed)) == 4096


HEAD = b'{"columns": [%s], "rings": [], "timing_sources": []}'


def head(count, size=0):
    names = sorted(step_columns.NEEDED)
    names += [f"c{number}" for number in range(count - len(names))]
    return (HEAD % ", ".join(f'"{name}"' for name in names).encode()).ljust(size)


def test_heads_of_answers_have_4_mib_and_64_columns():
    assert len(step_columns._head(head(64)).columns) == 64
    with pytest.raises(ValueError, match="of 65"):
        step_columns._head(head(65))
    assert step_columns._head(head(9, 4 << 20)).columns
    with pytest.raises(ValueError, match="4194305 bytes does not fit"):
        step_columns._head(head(9, (4 << 20) + 1))


@pytest.mark.parametrize(("rows", "taken"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_an_answer_has_a_mebi_of_rows(rows, taken):
    data = form.BLOCK.pack(rows, 0) + bytes(rows * 8) + form.BLOCK.pack(0, 2) + b"{}"
    if taken:
        assert step_columns._table(data, 0, 1)[0].shape == (1, rows)
        return
    with pytest.raises(ValueError, match="1048577 rows does not fit"):
        step_columns._table(data, 0, 1)


@pytest.mark.parametrize(("number", "taken"), [((1 << 62) - 1, True), ((1 << 62) + 1, False)])
def test_records_are_counted_up_to_two_to_the_62nd(number, taken):
    if taken:
        assert step_columns._counts([number], 1) == (number,)
        return
    with pytest.raises(ValueError, match="no cursor"):
        step_columns._counts([number], 1)


@pytest.mark.parametrize(("characters", "taken"), [(65_536, True), (65_537, False)])
def test_a_token_has_64_kib(tmp_path, characters, taken):
    path = tmp_path / "token"
    path.write_text("a" * characters)
    if taken:
        assert Entry(token_file=path).token() == "a" * characters
        return
    with pytest.raises(CredentialsError, match="longer than 65536"):
        Entry(token_file=path).token()


BUILD = "rankscope_build_info{} 1\n"


def of_a_file(monkeypatch, tmp_path, text):
    path = tmp_path / "node-1.prom"
    path.write_text(text)
    return local_pages.of_files([str(path)])[0]


def of_standard_input(monkeypatch, tmp_path, text):
    monkeypatch.setattr(local_pages.sys, "stdin", io.StringIO(text))
    return local_pages.of_files(["-"])[0]


def of_this_node(monkeypatch, tmp_path, text):
    done = SimpleNamespace(returncode=0, stdout=text.encode())
    monkeypatch.setattr(local_pages.subprocess, "run", lambda *_, **__: done)
    return local_pages.of_this_node()


@pytest.mark.parametrize("page", [of_a_file, of_standard_input, of_this_node])
def test_a_page_of_16_mebi_characters_is_whole_and_a_longer_one_is_refused(
    monkeypatch, tmp_path, page
):
    largest = BUILD + "#" * ((16 << 20) - len(BUILD))
    assert page(monkeypatch, tmp_path, largest).text == largest
    with pytest.raises(AgentError, match=r"page: it has over 16777216 characters"):
        page(monkeypatch, tmp_path, largest + "#")


def test_the_agent_of_this_node_has_two_minutes(monkeypatch):
    waited = []

    def run(command, timeout, **_):
        waited.append(timeout)
        return SimpleNamespace(returncode=0, stdout=b"rankscope_build_info{} 1\n")

    monkeypatch.setattr(local_pages.subprocess, "run", run)
    local_pages.of_this_node()
    assert waited == [120.0]


@pytest.mark.parametrize(("took", "late"), [(1.0, set()), (1.1, {"a"})])
def test_an_agent_is_late_after_a_second_and_an_answer_takes_twenty(monkeypatch, took, late):
    moments, waited = iter([1000.0, 1000.0 + took]), []
    connections = AgentConnections(Entry())

    async def at_once(asking, seconds):
        waited.append(seconds)
        asking.close()

    clock = SimpleNamespace(monotonic=lambda: next(moments))
    monkeypatch.setattr(agent_connections, "time", clock)
    monkeypatch.setattr(agent_connections.asyncio, "wait_for", at_once)
    connections._late.add("a")
    asyncio.run(connections._asking("a", [Question("/x")], "", None))
    assert waited == [20.0]
    assert connections._late == late
    connections.close()


def test_sockets_have_four_rounds_to_be_closed(monkeypatch):
    connections, rounds = AgentConnections(Entry()), []
    idle = connections.idle
    monkeypatch.setattr(connections, "idle", lambda seconds: rounds.append(idle(seconds)))
    connections.close()
    assert len(rounds) == 4


class Reader:
    """Answers with a head of so many headers."""

    def __init__(self, headers):
        self.head = b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * headers + b"\r\n"

    async def readuntil(self, separator):
        return self.head


@pytest.mark.parametrize(("headers", "taken"), [(100, True), (101, False)])
def test_an_answer_has_a_hundred_headers(headers, taken):
    connection = _Connection("a", "a", "", Reader(headers), None)
    if taken:
        assert asyncio.run(connection._status()) == (200, {"a": "b"})
        return
    with pytest.raises(ValueError, match="its answer begins with"):
        asyncio.run(connection._status())


def test_the_head_of_an_answer_has_64_kib(monkeypatch):
    limits = []

    async def opened(host, port, limit):
        limits.append(limit)
        return None, None

    monkeypatch.setattr(agent_connections.asyncio, "open_connection", opened)
    asyncio.run(agent_connections._connected("http://a:1", Entry(), None))
    assert limits == [1 << 16]
