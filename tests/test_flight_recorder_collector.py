"""Windows of real jobs' Flight Recorders, their bounds, and what becomes of bad sockets."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flight_servers import answer_with, dump, entry, recorder, serving
from known_pods import pods_of
from probe_jobs.nurseries import Nursery
from probe_jobs.running import Outcome, read_rings
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.flight_recorder.budget import Budget, period
from rankscope_agent.sources.flight_recorder.collector import FlightRecorderCollector
from rankscope_agent.sources.flight_recorder.launches import Launch, Launches, read_launches
from rankscope_agent.sources.flight_recorder.stream import windows_json
from rankscope_agent.sources.flight_recorder.windows import NS, FlightWindows
from rankscope_analyzers.profiles.flight_records import complete
from ring_writer import HEADER_FIELDS, RingWriter

CORE_SHARE = 0.01
KEPT_SECONDS = 3600.0
MAX_LAUNCHES = 512_000
SAVED_SECONDS = 3.0

NOW = 1_795_000_000.0
TEAM = ("team", "")


class Clock:
    """Unix time that a test moves."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def make(
    rings: Path, windows: FlightWindows, clock: Clock, kubelet: Path | None = None
) -> FlightRecorderCollector:
    place = kubelet or rings / "no-kubelet"
    return FlightRecorderCollector(rings, place, windows, pods_of("team"), clock)


def values(collector: FlightRecorderCollector) -> dict[str, float]:
    return {
        sample.metric.name.removeprefix("rankscope_flight_recorder_")
        + "".join(f" {label}" for label in sample.labels): sample.value
        for sample in collector.collect()
    }


def sent(windows: FlightWindows) -> list[dict[str, Any]]:
    """Give windows as the agent sends them."""
    answer = json.loads(b"".join(windows_json(windows.since(None, 0.0), "n")))
    return list(answer["windows"])


def records(rings: Path) -> pd.DataFrame:
    """Give the step records of a job, of which the probe knows no sync."""
    rows = [
        (ring.rank, record.start_unix_ns / NS, record.step_ns / NS)
        for ring in read_rings(rings)
        for record in ring.records
    ]
    table = pd.DataFrame(rows, columns=["rank", "t_start_unix_seconds", "step_seconds"])
    return table.assign(data_seconds=np.nan, compute_seconds=np.nan, sync_seconds=np.nan)


@contextmanager
def training(nursery: Nursery, rings: Path, way: str) -> Iterator[list[Outcome]]:
    """Run a recorded job for as long as the block lasts, from its sockets' appearance on."""
    ended: list[Outcome] = []
    stop = rings.parent / "stop"

    def run() -> None:
        ended.extend(
            nursery.run(
                rings,
                "recorded.py",
                way,
                str(stop),
                ranks=2,
                RANKSCOPE_PROBE_COLLECTIVES="0",
                finalized=True,
            )
        )

    thread = threading.Thread(target=run)
    thread.start()
    waiting = threading.Event()
    for _ in range(600):
        if len(list(rings.glob("*.sock"))) == 2 or ended:
            break
        waiting.wait(0.05)
    waiting.wait(2.0)  # for steps to be recorded
    try:
        yield ended
    finally:
        stop.touch()
        thread.join(90.0)


def test_recorders_of_a_real_job_are_kept_with_their_windows(
    nursery: Nursery, tmp_path: Path
) -> None:
    rings, windows = tmp_path / "rings", FlightWindows()
    rings.mkdir()
    clock = Clock(time.time() - 60)
    with training(nursery, rings, "ddp") as ended:
        collector = make(rings, windows, clock)
        clock.now = time.time()
        seen = values(collector)
    assert [process.code for process in ended] == [0, 0]
    assert seen["sockets"] == seen["pulls_total"] == 2, seen
    assert seen["entries_skipped_total"] == 0
    first, second = sorted(windows.since(None, 0.0), key=lambda window: window.rank)
    for window, ring in zip((first, second), read_rings(rings), strict=True):
        assert window.backend == "gloo"
        assert (window.rank, window.job_id) == (ring.rank, ring.job_id)
        assert window.operations == ("all_reduce",)
        assert len(window.seq) > 20
        assert list(window.seq) == list(range(window.seq[0], window.seq[0] + len(window.seq)))
        # What the job did before its first record is not in the window, and all since is.
        assert window.begin_ns < ring.records[1].start_unix_ns
        assert window.end_ns > ring.records[10].start_unix_ns
        assert all(record.flags & 3 == 0 for record in ring.records)
    shared = set(first.seq) & set(second.seq)
    late = [
        second.time_ns[second.seq.index(seq)] - first.time_ns[first.seq.index(seq)]
        for seq in shared
    ]
    assert sorted(late)[len(late) // 2] > 0.02 * NS  # the slow rank launches 30 ms after the other
    filled, _ = complete(records(rings), sent(windows), {}, 2)
    compute = filled.groupby("rank")["compute_seconds"].median()
    assert compute[1] - compute[0] > 0.02
    assert filled["sync_seconds"].notna().sum() > 20
    # A process that ended has taken its socket away.
    assert list(rings.glob("*.sock")) == []


def test_job_that_ends_right_after_its_server_began_ends_as_ever(
    nursery: Nursery, tmp_path: Path
) -> None:
    """A worker server that is shut down so early hangs for ever; it is left running instead."""
    outcomes = nursery.run(
        tmp_path,
        "recorded.py",
        "exit",
        "-",
        ranks=2,
        RANKSCOPE_PROBE_COLLECTIVES="0",
        finalized=True,
    )
    assert [ended.code for ended in outcomes] == [0, 0]
    for ended in outcomes:
        assert ended.served
        assert "shutting down" not in ended.errors
        assert "rankscope probe" not in ended.errors
    assert len(list(tmp_path.glob("*.ring"))) == 2
    assert list(tmp_path.glob("*.sock")) == []


@pytest.mark.parametrize(
    "variables", [{"RANKSCOPE_PROBE_FLIGHT": "0"}, {"TORCH_FR_BUFFER_SIZE": "0"}]
)
def test_no_server_is_started_without_use(
    nursery: Nursery, tmp_path: Path, variables: dict[str, str]
) -> None:
    outcomes = nursery.run(
        tmp_path, "recorded.py", "exit", "-", ranks=2, finalized=True, **variables
    )
    assert [ended.code for ended in outcomes] == [0, 0]
    assert not any(ended.served for ended in outcomes)


def test_directory_too_deep_for_a_socket_costs_one_line(nursery: Nursery, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    outcomes = nursery.run(
        deep, "recorded.py", "exit", "-", ranks=2, RANKSCOPE_PROBE_COLLECTIVES="0", finalized=True
    )
    assert [ended.code for ended in outcomes] == [0, 0]
    for ended in outcomes:
        (line,) = [line for line in ended.errors.splitlines() if "rankscope" in line]
        assert "too long for a socket" in line
    assert len(list(deep.glob("*.ring"))) == 2


def launches(*times: int) -> tuple[Launch, ...]:
    return tuple(Launch("0", "all_reduce", seq, time, -1) for seq, time in enumerate(times, 1))


def test_windows_that_overlap_become_one_stretch_and_others_leave_a_gap() -> None:
    windows = FlightWindows()
    whole = Launches("gloo", launches(100, 200, 300), True, 0)
    first = windows.add(TEAM, "a/b", 0, 50, 350, whole)
    again = windows.add(
        TEAM, "a/b", 0, 50, 500, Launches("gloo", launches(100, 200, 300, 400), True, 0)
    )
    later = windows.add(TEAM, "a/b", 0, 50, 900, Launches("gloo", launches(700, 800), False, 0))
    assert first is not None
    assert again is not None
    assert later is not None
    assert [(w.begin_ns, w.end_ns) for w in (first, again, later)] == [
        (50, 350),
        (350, 500),
        (701, 900),
    ]
    assert [list(w.time_ns) for w in (first, again, later)] == [[100, 200, 300], [400], [800]]


def test_another_process_of_a_rank_begins_anew() -> None:
    windows = FlightWindows()
    windows.add(TEAM, "a/b", 0, 50, 900, Launches("gloo", launches(100), True, 0))
    restarted = windows.add(TEAM, "a/b", 0, 800, 950, Launches("gloo", launches(850), True, 0))
    assert restarted is not None
    assert (restarted.begin_ns, list(restarted.time_ns)) == (800, [850])


def test_windows_are_bounded_in_number_and_age() -> None:
    windows = FlightWindows()
    many = tuple(Launch("0", "all_reduce", seq, seq, -1) for seq in range(8_000))
    for rank in range(MAX_LAUNCHES // 8_000 + 10):
        windows.add(TEAM, "a/b", rank, 0, 10**6, Launches("gloo", many, True, 0))
    kept = windows.since(None, 0.0)
    assert sum(len(window.seq) for window in kept) <= MAX_LAUNCHES
    assert kept[0].rank > 0
    windows.add(TEAM, "a/b", 0, 0, round((KEPT_SECONDS + 1) * NS), Launches("gloo", (), True, 0))
    assert len(windows.since(None, 0.0)) == 1


def test_windows_are_asked_for_by_job_and_time() -> None:
    windows = FlightWindows()
    for job, asked in (("a/b", 2 * NS), ("c/d", 3 * NS)):
        windows.add(TEAM, job, 0, 0, asked, Launches("gloo", launches(5), True, 0))
    assert [window.job_id for window in windows.since(None, 2.5)] == ["c/d"]
    assert [window.job_id for window in windows.since("a/b", 0.0)] == ["a/b"]
    text = b"".join(windows_json(windows.since(None, 0.0), 'node "1"'))
    answer = json.loads(text)
    assert answer["node"] == 'node "1"'
    assert answer["windows"][0]["time_ns"] == [5]


def test_looks_cost_their_share_of_a_core_whatever_one_of_them_costs() -> None:
    for cost in (0.01, 0.2, 1.6, 12.0):
        budget, looks = Budget(NOW), 0
        for second in range(40_000):
            if budget.due(NOW + second, cost):
                budget.spend(cost)
                looks += 1
        assert looks > 10
        assert budget.spent <= CORE_SHARE * 40_000 + SAVED_SECONDS + cost


def test_looks_of_nodes_with_other_costs_share_their_times() -> None:
    assert [period(cost) for cost in (0.0, 0.15, 0.16, 0.7, 99.0)] == [15, 15, 30, 120, 960]


def test_no_server_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(NoData, match="worker server"):
        values(make(tmp_path, FlightWindows(), Clock()))


def test_ring_without_a_process_is_not_asked_for(tmp_path: Path) -> None:
    ring = RingWriter(tmp_path, "7-8.ring")
    ring.end()
    with serving(tmp_path / "7-8.sock", recorder(dump(entry(1, 1)))) as requests:
        clock = Clock()
        collector = make(tmp_path, FlightWindows(), clock)
        clock.now += 60
        with pytest.raises(NoData):
            values(collector)
    assert requests == []


def test_ranks_that_tell_their_sync_time_are_not_asked(tmp_path: Path) -> None:
    ring, clock = RingWriter(tmp_path, "7-8.ring"), Clock()
    ring.step()
    body = dump(entry(1, HEADER_FIELDS["created_unix_ns"] + 10))
    with serving(tmp_path / "7-8.sock", recorder(body)) as requests:
        collector = make(tmp_path, FlightWindows(), clock)
        clock.now += 60
        with pytest.raises(NoData, match="without sync time"):
            values(collector)
    assert requests == []
    ring.step(flags=0, sync_ns=-1, compute_ns=-1)
    with serving(tmp_path / "7-8.sock", recorder(body)) as requests:
        clock.now += 60
        assert values(collector)["pulls_total"] == 1
    assert requests


def test_bad_server_costs_its_own_rank_only_and_is_left_alone_longer_and_longer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = RingWriter(tmp_path, "7-8.ring", rank=0), RingWriter(tmp_path, "7-9.ring", rank=1)
    created = HEADER_FIELDS["created_unix_ns"]
    body = dump(entry(1, created + 10), entry(2, created + 20))
    clock, windows = Clock(), FlightWindows()
    collector = make(tmp_path, windows, clock)
    with (
        serving(tmp_path / "7-8.sock", lambda c, _: c.sendall(b"garbage\r\n\r\n")) as bad_requests,
        serving(tmp_path / "7-9.sock", recorder(body)),
    ):
        for _ in range(40):
            clock.now += 15
            seen = values(collector)
    assert seen["failures_total http"] == len(bad_requests)
    assert 2 <= len(bad_requests) <= 6  # after 30, 60, 120 ... seconds
    assert seen["pulls_total"] > 30
    assert {window.rank for window in windows.since(None, 0.0)} == {1}
    assert len([line for line in caplog.messages if "no Flight Recorder from" in line]) == 1
    bad.end()
    good.end()


def test_pods_sockets_are_found_and_links_in_them_are_not_followed(tmp_path: Path) -> None:
    volume = tmp_path / "kubelet/pods/0a1b/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    (tmp_path / "rings").mkdir()
    ring = RingWriter(volume, "7-8.ring")
    clock = Clock()
    collector = make(tmp_path / "rings", FlightWindows(), clock, tmp_path / "kubelet")
    short = os.open(volume, os.O_RDONLY)
    with serving(tmp_path / "s", recorder(dump(entry(1, 1)))) as requests:
        os.symlink(tmp_path / "s", "7-8.sock", dir_fd=short)
        clock.now += 16
        seen = values(collector)
        assert seen["failures_total symlink"] == 1
        assert requests == []
        os.unlink("7-8.sock", dir_fd=short)
        os.rename(tmp_path / "s", "7-8.sock", dst_dir_fd=short)
        clock.now += 120
        assert values(collector)["pulls_total"] == 1
    os.close(short)
    ring.end()


def test_dump_of_another_version_is_counted(tmp_path: Path) -> None:
    ring, clock = RingWriter(tmp_path, "7-8.ring"), Clock()
    collector = make(tmp_path, FlightWindows(), clock)
    with serving(tmp_path / "7-8.sock", recorder(dump(version="3.1"))):
        clock.now += 16
        assert values(collector)["failures_total version"] == 1
    ring.end()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (recorder(b"", "ping"), "no_recorder"),
        (lambda c, _: c.sendall(answer_with(b"[]")), "no_recorder"),
        (recorder(dump()), "empty"),
        (recorder(b'{"version": "2.3", "pg_status": {}}'), "empty"),
        (recorder(dump(entry(1, "yesterday"))), "empty"),
    ],
)
def test_server_that_records_nothing_is_no_rank_without_collectives(
    tmp_path: Path, answer: Any, reason: str
) -> None:
    """Recorders are off by default in old versions, and only some backends have one."""
    ring, clock, windows = RingWriter(tmp_path, "7-8.ring"), Clock(), FlightWindows()
    collector = make(tmp_path, windows, clock)
    with serving(tmp_path / "7-8.sock", answer):
        clock.now += 16
        assert values(collector)[f"failures_total {reason}"] == 1
    assert windows.since(None, 0.0) == ()
    ring.end()


def test_rank_that_only_sends_messages_has_windows(tmp_path: Path) -> None:
    ring, clock, windows = RingWriter(tmp_path, "7-8.ring"), Clock(), FlightWindows()
    collector = make(tmp_path, windows, clock)
    sent = entry(1, HEADER_FIELDS["created_unix_ns"] + 10, is_p2p=True, profiling_name="nccl:send")
    with serving(tmp_path / "7-8.sock", recorder(dump(sent))):
        clock.now += 16
        assert values(collector)["pulls_total"] == 1
    assert len(windows.since(None, 0.0)) == 1
    ring.end()


def test_rank_that_launches_nothing_for_a_while_has_windows_without_collectives() -> None:
    windows = FlightWindows()
    windows.add(TEAM, "a/b", 0, 10, 50, read_launches(dump(entry(1, 20))))
    window = windows.add(TEAM, "a/b", 0, 10, 90, read_launches(dump(entry(1, 20))))
    assert window is not None
    assert (window.begin_ns, window.end_ns, len(window.seq)) == (50, 90, 0)
