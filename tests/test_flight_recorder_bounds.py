"""The last that is still taken and the first that is not, of each limit on Flight Recorders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from flight_servers import dump, entry
from rankscope_agent.sources.flight_recorder import collector as flight
from rankscope_agent.sources.flight_recorder import worker_server
from rankscope_agent.sources.flight_recorder.budget import Budget
from rankscope_agent.sources.flight_recorder.failures import FlightError
from rankscope_agent.sources.flight_recorder.launches import Launches, read_launches
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.training import files
from rankscope_agent.sources.training.files import RingDirectory
from ring_writer import NS
from standing_clock import Clock
from test_flight_recorder_collector import TEAM, make

NOW = 1_795_272_662_623_976_391


@pytest.mark.parametrize(("cost", "due"), [(1.0, True), (1.01, False)])
def test_a_look_may_cost_a_core_second_at_first(cost, due):
    assert Budget(119.9).due(120.0, cost) is due


@pytest.mark.parametrize(("cost", "due"), [(1.0, True), (1.01, False)])
def test_three_core_seconds_are_saved_up(cost, due):
    budget = Budget(0.0)
    assert budget.due(959.9, 1.0)
    budget.spend(2.0)
    assert budget.due(960.0, cost) is due


def test_a_rank_that_was_not_asked_yet_is_taken_to_cost_a_tenth_of_a_second(tmp_path):
    collector = make(tmp_path, FlightWindows(), Clock())
    assert collector._state("new").cost_seconds == 0.1


def socket(path, rank):
    place = RingDirectory(path, (), "")
    return flight.RankSocket(place, f"{rank}.sock", None, "a/b", rank, 0, ("u", ""))


@pytest.fixture
def asking(tmp_path, monkeypatch):
    clock = Clock()
    made = make(tmp_path, FlightWindows(), clock)
    made.now = clock
    monkeypatch.setattr(made, "_find", lambda now: made.finds.append(now))
    made.finds = []
    return made


def test_sockets_are_looked_for_every_five_seconds(asking):
    asking._pulls = 1
    for later in (0.0, 4.9, 0.2):
        asking.now.now += later
        list(asking.collect())
    assert asking.finds == [1000.0, pytest.approx(1005.1)]


def test_a_run_lasts_six_seconds_and_one_answer_two(asking, monkeypatch, tmp_path):
    clock, given = Clock(), []

    def fetched(directory, name, owner, parts, seconds):
        given.append(seconds)
        clock.now += 1.6
        raise FileNotFoundError

    monkeypatch.setattr(flight, "time", clock)
    monkeypatch.setattr(flight, "fetch", fetched)
    asking._ask([socket(tmp_path, index) for index in range(6)], 0.0)
    assert given == [2.0, 2.0, 2.0]  # begun after 0, 1.6 and 3.2 seconds; after 4.8 none is


def test_a_socket_that_is_gone_is_asked_again_after_five_seconds(asking, monkeypatch):
    def gone(socket):
        raise FileNotFoundError

    one = socket(Path("/none"), 0)
    monkeypatch.setattr(asking, "_pull", gone)
    asking._ask([one], 1000.0)
    assert asking._states[one].left_until == 1005.0


def test_failures_double_their_pause_from_half_a_minute_to_an_hour(asking):
    state = flight._SocketState()
    socket = SimpleNamespace(directory=SimpleNamespace(path=files.Path("/")), name="s")
    pauses = []
    for _ in range(9):
        asking._note_failure(socket, state, FlightError("timeout", "x"), 0.0)
        pauses.append(state.left_until)
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_256_sockets_are_asked(tmp_path, monkeypatch):
    made = make(tmp_path, FlightWindows(), Clock())
    one = flight.RankSocket(None, "a.sock", None, "a/b", 0, 0, ("u", ""))
    sockets = [replace(one, rank=index) for index in range(300)]
    monkeypatch.setattr(made, "_sockets_of", lambda *of: sockets)
    made._find(0.0)
    assert len(made._sockets) == 256


@pytest.mark.parametrize(
    ("changed", "taken"),
    [
        ({"duration_ms": 86_400_000.0}, True),
        ({"duration_ms": 86_400_001.0}, False),
        ({"time_created_ns": 4_102_444_800 * NS}, True),
        ({"time_created_ns": 4_102_444_800 * NS + 1}, False),
        ({"collective_seq_id": 1 << 48}, True),
        ({"collective_seq_id": (1 << 48) + 1}, False),
    ],
)
def test_an_entry_has_limits_of_time_and_number(changed, taken):
    read = read_launches(dump(entry(1, NOW, profiling_name="nccl:all_reduce", **changed)))
    assert read.skipped == (not taken)


@pytest.mark.parametrize(("values", "read"), [(512_000, True), (512_001, False)])
def test_a_dump_has_64_values_for_each_of_8000_entries_at_most(values, read):
    frame = b'{"version":"2.1","entries":[]'
    marks = frame.count(b",") + frame.count(b"{") + frame.count(b"[") + 3
    body = frame + b',"x":[1' + b",1" * (values - marks + 1) + b"]}"
    assert sum(body.count(mark) for mark in (b",", b"{", b"[")) == values
    if read:
        assert read_launches(body).launches == ()
        return
    with pytest.raises(FlightError):
        read_launches(body)


def test_windows_are_kept_for_an_hour():
    windows = FlightWindows()
    windows.add(TEAM, "a/b", 0, 0, 2 * NS, Launches("gloo", (), True, 0))
    windows.add(TEAM, "c/d", 0, 0, 3602 * NS, Launches("gloo", (), True, 0))
    assert len(windows.since(None, 0.0)) == 2
    windows.add(TEAM, "e/f", 0, 0, 3603 * NS, Launches("gloo", (), True, 0))
    assert len(windows.since(None, 0.0)) == 2


def test_a_list_of_handlers_has_64_kibibytes_at_most(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(worker_server, "_check_socket", lambda descriptor, owner: None)
    monkeypatch.setattr(
        worker_server, "_ask", lambda path, order, limit, *rest: asked.append(limit) or b"[]"
    )
    (tmp_path / "s").touch()
    directory = os.open(tmp_path, os.O_RDONLY)
    worker_server.fetch(directory, "s", None, print)
    os.close(directory)
    assert asked == [64 << 10]
