"""Ranks' processes that wait for a CPU, in trees like procfs and on the machine we run on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope_agent.contract.metrics import starvation as metrics
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.pods.lock_holders import parse_lock_holders
from rankscope_agent.sources.starvation.collector import StarvationCollector
from rankscope_agent.sources.starvation.schedule import (
    Waits,
    busiest_threads,
    parse_parent,
    parse_schedstat,
    parse_state,
)
from rankscope_agent.sources.training.reader import RingStepSource
from rdma_files import write
from ring_writer import RingWriter

AGAIN_SECONDS = 5.0
ALL_SECONDS = 300.0
FIND_SECONDS = 30.0
LOOK_SECONDS = 5.0
MAX_THREADS = 512
WATCHED_THREADS = 16

S = 10**9
SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


class Node:
    """A procfs with processes of which some hold rings."""

    def __init__(self, root: Path) -> None:
        self.now = 100.0
        self.procfs = root
        self.rings: dict[tuple[int, int, int], tuple[str, int]] = {}
        self.locks: list[str] = []
        self.collector = StarvationCollector(root, lambda _: self.rings, lambda: self.now)

    def rank(self, rank: int, pid: int, *, seen: bool = True) -> None:
        self.rings[0, 27, 1000 + pid] = ("team/job", rank)
        if seen:
            self.locks.append(f"{rank}: FLOCK  ADVISORY  WRITE {pid} 00:1b:{1000 + pid} 0 EOF")
        write(self.procfs / "locks", "\n".join(self.locks))

    def thread(self, pid: int, thread: int, ran: int, waited: int, parent: int = 1) -> None:
        text = f"{ran} {waited} 7"
        write(self.procfs / str(pid) / "task" / str(thread) / "schedstat", text)
        if pid == thread:
            write(self.procfs / str(pid) / "schedstat", text)
        write(self.procfs / str(pid) / "stat", f"{pid} (a ) name) S {parent} 1 1")

    def look(self, later: float = LOOK_SECONDS) -> dict[tuple[str, str], float]:
        """Return how long ranks and their workers waited so far."""
        found = self.told(later)
        waits = (metrics.RANK_STARVED.name, metrics.LOADER_STARVED.name)
        return {key: value for key, value in found.items() if key[0] in waits}

    def told(self, later: float = LOOK_SECONDS) -> dict[tuple[str, str], float]:
        """Return everything that is told of ranks."""
        self.now += later
        found = list(self.collector.collect())
        assert {sample.labels[0] for sample in found} <= {"team/job"}
        return {(sample.metric.name, sample.labels[1]): sample.value for sample in found}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def starved(rank: int) -> tuple[str, str]:
    return metrics.RANK_STARVED.name, str(rank)


def loader(rank: int) -> tuple[str, str]:
    return metrics.LOADER_STARVED.name, str(rank)


def test_a_rank_waits_as_long_as_that_of_its_threads_which_waits_longest(node: Node) -> None:
    node.rank(3, 40)
    node.thread(40, 40, 5 * S, 1 * S)
    node.thread(40, 41, 5 * S, 9 * S)
    assert node.look() == {starved(3): 0.0}
    node.thread(40, 40, 6 * S, int(1.25 * S))
    node.thread(40, 41, 6 * S, int(9.5 * S))
    assert node.look() == {starved(3): pytest.approx(0.5)}
    assert node.look() == {starved(3): pytest.approx(0.5)}


def test_loader_workers_are_counted_apart_from_their_rank(node: Node) -> None:
    node.rank(0, 40)
    node.thread(40, 40, S, 0)
    node.thread(50, 50, S, S, parent=40)
    node.thread(51, 51, S, S, parent=40)
    node.thread(60, 60, S, S, parent=1)
    node.look()
    node.thread(51, 51, 2 * S, int(1.75 * S), parent=40)
    node.thread(60, 60, 2 * S, 9 * S, parent=1)
    assert node.look() == {starved(0): 0.0, loader(0): pytest.approx(0.75)}


def test_threads_and_workers_that_come_later_are_found_and_ended_ones_forgotten(node: Node) -> None:
    node.rank(0, 40)
    node.thread(40, 40, S, S)
    node.look()
    node.thread(40, 42, 5 * S, 100 * S)
    assert node.look()[starved(0)] == 0.0
    node.look(FIND_SECONDS)
    node.thread(40, 42, 5 * S, int(100.5 * S))
    assert node.look()[starved(0)] == pytest.approx(0.5)
    (node.procfs / "40/task/42/schedstat").unlink()
    assert node.look()[starved(0)] == pytest.approx(0.5)


def test_processes_that_are_no_workers_are_looked_at_again_with_new_ranks_and_at_times(
    node: Node,
) -> None:
    node.rank(0, 40)
    node.thread(40, 40, S, 0)
    node.thread(50, 50, S, 0, parent=41)
    node.thread(60, 60, S, 0, parent=1)
    assert node.look() == {starved(0): 0.0}
    node.thread(60, 60, S, 0, parent=40)  # its number was reused
    assert node.look(FIND_SECONDS) == {starved(0): 0.0}
    node.rank(1, 41)
    node.thread(41, 41, S, 0)
    assert node.look(FIND_SECONDS) == {
        starved(0): 0.0,
        starved(1): 0.0,
        loader(0): 0.0,
        loader(1): 0.0,
    }
    node.thread(70, 70, S, 0, parent=1)
    node.look(FIND_SECONDS)
    node.thread(70, 70, S, 0, parent=41)
    write(node.procfs / "50" / "stat", "50 (python) S 1 1 1")
    node.look(FIND_SECONDS)
    node.thread(70, 70, S, 2 * S, parent=41)
    assert node.look()[loader(1)] == 0.0
    node.look(ALL_SECONDS)
    node.thread(70, 70, S, 4 * S, parent=41)
    assert node.look()[loader(1)] == pytest.approx(2.0)


def test_no_wait_is_longer_than_the_time_between_two_looks(node: Node) -> None:
    node.rank(0, 40)
    node.thread(40, 40, S, S)
    node.look()
    node.thread(40, 40, S, 60 * S)
    assert node.look(6.0) == {starved(0): pytest.approx(6.0)}
    node.thread(40, 40, S, 1)  # a thread that has its number now
    assert node.look(6.0) == {starved(0): pytest.approx(6.0)}


def test_between_looks_the_last_one_stands(node: Node) -> None:
    node.rank(0, 40)
    node.thread(40, 40, S, S)
    node.look()
    node.thread(40, 40, S, 2 * S)
    assert node.look(LOOK_SECONDS / 2) == {starved(0): 0.0}
    assert node.look(LOOK_SECONDS / 2) == {starved(0): pytest.approx(1.0)}


def test_a_kernel_that_counts_nothing_gives_nothing(node: Node) -> None:
    node.rank(0, 40)
    node.thread(40, 40, 0, 0)
    with pytest.raises(NoData, match="does not count"):
        node.look()


def test_absent_sources_say_what_is_missing(node: Node) -> None:
    with pytest.raises(NoData, match="no live rank has a ring"):
        node.look()
    node.rank(0, 40, seen=False)
    with pytest.raises(NoData, match="no live rank"):  # it is not looked for at every run
        node.look(1.0)
    with pytest.raises(NoData, match="another PID namespace"):
        node.look(AGAIN_SECONDS)


def test_a_rank_that_ends_takes_its_series_with_it(node: Node) -> None:
    for rank in (0, 1):
        node.rank(rank, 40 + rank)
        node.thread(40 + rank, 40 + rank, S, S)
    assert set(node.look()) == {starved(0), starved(1)}
    node.rings.popitem()
    assert set(node.look(FIND_SECONDS)) == {starved(0)}


def test_a_rank_whose_lock_is_not_seen_once_keeps_its_series(node: Node) -> None:
    """Of /proc/locks a reader misses what is locked and unlocked while it reads."""
    for rank in (0, 1):
        node.rank(rank, 7 + rank)
        node.thread(7 + rank, 7 + rank, S, S)
    node.told()
    shown, node.locks = list(node.locks), node.locks[1:]
    write(node.procfs / "locks", "\n".join(node.locks))
    assert {rank for _, rank in node.told(FIND_SECONDS)} == {"0", "1"}
    assert {rank for _, rank in node.told(FIND_SECONDS)} == {"1"}
    write(node.procfs / "locks", "\n".join(shown))
    assert {rank for _, rank in node.told(FIND_SECONDS)} == {"0", "1"}


def test_only_the_threads_that_want_most_are_followed_and_the_first_one_always(node: Node) -> None:
    for thread in range(40, 40 + MAX_THREADS + 20):
        node.thread(40, thread, thread, 0)
    watched = busiest_threads(node.procfs / "40")
    assert len(watched) == WATCHED_THREADS
    assert watched[0].parent.name == "40"
    assert watched[1].parent.name == str(40 + MAX_THREADS - 1)


@pytest.mark.parametrize("text", ["", "0 0 0", "1 2", "a b c", "1 -2 3", "1 2 3 4", "x" * 5000])
def test_what_is_no_schedstat_is_nothing(text: str) -> None:
    assert parse_schedstat(text) is None
    assert Waits().seconds is None


def test_only_whole_locks_for_writing_name_a_holder() -> None:
    text = """1: FLOCK  ADVISORY  WRITE 7 00:1b:263050 0 EOF
2: POSIX  ADVISORY  WRITE 8 00:1b:263051 0 EOF
2: -> FLOCK  ADVISORY  WRITE 9 00:1b:263052 0 EOF
3: FLOCK  ADVISORY  READ 10 00:1b:263053 0 EOF
4: FLOCK  ADVISORY  WRITE 11 103:0a:5 0 EOF
5: FLOCK  ADVISORY  WRITE"""
    assert parse_lock_holders(text) == {(0, 27, 263050): 7, (259, 10, 5): 11}
    assert parse_lock_holders("") == {}


@pytest.mark.parametrize(
    ("stat", "parent"), [("7 (a) b) S 4 7", 4), ("7 (a) S", None), ("", None), ("x) S y", None)]
)
def test_a_parent_is_read_behind_any_name(stat: str, parent: int | None) -> None:
    assert parse_parent(stat) == parent


@pytest.fixture
def crowd() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Give programs that share one CPU."""
    cpu = min(os.sched_getaffinity(0))
    command = [sys.executable, "-IS", "-c", f"import os\nos.sched_setaffinity(0, [{cpu}])\n{SPIN}"]
    programs = [subprocess.Popen(command) for _ in range(3)]
    yield programs
    for program in programs:
        program.kill()
        program.wait()


def test_this_machine_shows_who_holds_a_ring_and_how_its_children_wait(
    tmp_path: Path, crowd: list[subprocess.Popen[bytes]]
) -> None:
    writer = RingWriter(tmp_path, rank=2)
    writer.step()
    rings = RingStepSource(tmp_path, tmp_path / "kubelet", "node")
    collector = StarvationCollector(
        Path("/proc"), rings.holders, lambda: 2 * LOOK_SECONDS * time.monotonic()
    )
    before = {sample.metric: sample for sample in collector.collect()}
    assert before[metrics.RANK_STARVED].labels == ("team/job", "2")
    time.sleep(0.5)
    after = {sample.metric: sample.value for sample in collector.collect()}
    # Three programs on one CPU wait for two thirds of the time; a busy machine makes it more.
    assert 0.1 < after[metrics.LOADER_STARVED] - before[metrics.LOADER_STARVED].value < 60
    writer.end()


@pytest.mark.parametrize("state", ["T", "t", "S", "R", "D"])
def test_the_state_of_a_process_is_read_behind_any_name(state: str) -> None:
    assert parse_state(f"7 (a ) T (b) {state} 1 1") == state
    assert parse_state("") == ""


def test_this_machine_shows_a_process_as_stopped_as_long_as_it_is() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as held:
        for number, stopped in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
            held.send_signal(number)
            deadline = time.monotonic() + 10
            stat = Path(f"/proc/{held.pid}/stat")
            while (parse_state(stat.read_text()) == "T") is not stopped:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        held.kill()


def test_a_rank_that_is_stopped_is_told_until_it_goes_on(node: Node) -> None:
    node.rank(3, 30)
    node.thread(30, 30, S, S)
    stopped = metrics.RANK_STOPPED.name, "3"
    assert node.told()[stopped] == 0
    last = metrics.RANK_LAST_STOPPED.name, "3"
    assert last not in node.told()
    stat = node.procfs / "30" / "stat"
    running = stat.read_text()
    stat.write_text(running.replace(") S", ") t"))
    assert node.told()[stopped] == 1
    assert last not in node.told(), "a debugger holds it for a moment"
    before = time.time()
    stat.write_text(running.replace(") S", ") T"))
    assert node.told()[stopped] == 1
    stat.write_text(running)
    found = node.told()
    assert found[stopped] == 0
    assert before <= found[last] <= time.time()
    stat.unlink()
    assert stopped not in node.told()
