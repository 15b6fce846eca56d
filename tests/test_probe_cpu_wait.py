"""How the probe counts the time in which its thread waits for a CPU, on a thread that does."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import rankscope_probe

S = 10**9
LATE = 2 * rankscope_probe._LOOK_NS


class Schedule:
    """Waits whose schedstat says what a test wants."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "schedstat"
        self.waits = rankscope_probe._CpuWaits()
        self.waits.looked_ns = self.ran = 0
        self.says(0)
        self.waits.schedule = rankscope_probe._Held(os.open(self.file, os.O_RDONLY))

    def says(self, waited: int) -> None:
        self.file.write_text(f"1 {waited} 1\n")

    def look(self, now: int, sync: int = 0, *, outside: bool = True) -> None:
        self.waits.look(now, sync, outside)


@pytest.fixture
def schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Schedule:
    """Give waits of a thread that runs only as long as a test says."""
    schedule = Schedule(tmp_path)
    monkeypatch.setattr(rankscope_probe.time, "thread_time_ns", lambda: schedule.ran)
    return schedule


def test_waits_count_as_what_the_stretch_was_that_they_fell_in(schedule: Schedule) -> None:
    schedule.says(LATE // 2)
    schedule.look(LATE)
    assert schedule.waits.total_ns == LATE // 2
    schedule.says(LATE)
    schedule.look(2 * LATE, outside=False)
    assert schedule.waits.total_ns == LATE // 2


def test_schedstat_is_not_read_while_the_thread_runs(schedule: Schedule) -> None:
    schedule.says(LATE)
    schedule.ran = LATE - rankscope_probe._IDLE_NS
    schedule.look(LATE)
    assert schedule.waits.seen_ns == 0
    schedule.look(2 * LATE)
    assert schedule.waits.total_ns == LATE


def test_time_in_sync_is_no_reason_to_read_schedstat_nor_does_it_count(schedule: Schedule) -> None:
    schedule.says(LATE)
    schedule.look(LATE, LATE - rankscope_probe._IDLE_NS)
    assert schedule.waits.seen_ns == 0
    schedule.waits.begin_step(LATE)
    schedule.look(3 * LATE, LATE // 2)
    assert (schedule.waits.seen_ns, schedule.waits.total_ns) == (LATE, LATE)
    schedule.says(2 * LATE)
    schedule.look(4 * LATE, LATE + 1000)
    assert schedule.waits.total_ns == LATE + LATE // 2 - 1000


def test_more_time_on_the_cpu_than_passed_outside_of_sync_hides_no_later_wait(
    schedule: Schedule,
) -> None:
    """Collectives run too, in part."""
    schedule.ran = LATE
    schedule.look(LATE, LATE // 2)
    schedule.says(LATE)
    schedule.look(2 * LATE, LATE // 2)
    assert schedule.waits.total_ns == LATE


def test_after_sync_schedstat_is_read_seldom_until_the_thread_waits_elsewhere(
    schedule: Schedule,
) -> None:
    read, calm, wary = [], rankscope_probe._CALM_NS, rankscope_probe._WARY_NS
    for now in (LATE, calm, calm + LATE):
        schedule.says(now)
        schedule.look(now, now, outside=False)
        read.append(schedule.waits.read_ns)
    assert read == [0, 0, calm + LATE]
    schedule.look(2 * calm, calm + LATE)
    for now in (2 * calm + LATE, 2 * calm + wary, 2 * calm + wary + LATE):
        schedule.says(now)
        schedule.look(now, now, outside=False)
        read.append(schedule.waits.read_ns)
    assert read[3:] == [2 * calm + LATE, 2 * calm + wary, 2 * calm + wary]


def test_a_short_stretch_is_left_to_the_next_look(schedule: Schedule) -> None:
    schedule.says(1000)
    schedule.look(rankscope_probe._LOOK_NS // 2)
    assert schedule.waits.total_ns == 0
    schedule.look(LATE)
    assert schedule.waits.total_ns == 1000


def test_a_wait_that_began_behind_a_stretch_is_of_the_next_one(schedule: Schedule) -> None:
    schedule.says(LATE + 500)
    schedule.look(LATE)
    assert schedule.waits.total_ns == LATE
    schedule.look(2 * LATE)
    assert schedule.waits.total_ns == LATE + 500


@pytest.mark.parametrize("content", ["", "7", "a b c"])
def test_a_schedule_written_in_another_way_ends_the_counting(
    schedule: Schedule, content: str
) -> None:
    schedule.file.write_text(content)
    schedule.look(LATE)
    assert schedule.waits.looked_ns == rankscope_probe._NEVER_NS
    schedule.look(9 * LATE)
    assert schedule.waits.total_ns == 0


def test_a_descriptor_that_the_program_closed_ends_the_counting(schedule: Schedule) -> None:
    os.close(schedule.waits.schedule.number)
    schedule.look(LATE)
    assert schedule.waits.looked_ns == rankscope_probe._NEVER_NS


def test_a_descriptor_that_became_another_file_is_neither_read_nor_closed(
    schedule: Schedule, tmp_path: Path
) -> None:
    (other := tmp_path / "other").write_text("1 999999999 1")
    number = schedule.waits.schedule.number
    with other.open() as own:
        os.dup2(own.fileno(), number)
    schedule.look(LATE)
    assert (schedule.waits.total_ns, schedule.waits.looked_ns) == (0, rankscope_probe._NEVER_NS)
    os.close(number)  # still the program's


def test_a_reading_takes_two_system_calls_and_leaves_the_descriptor_known() -> None:
    """With cold caches, as between the micro-batches of a busy node, each takes 10 to 30 us."""
    waits, called = rankscope_probe._CpuWaits(), []
    waits.watch()

    def note(_: object, event: str, function: Any) -> None:
        if event == "c_call" and function.__module__ == os.lseek.__module__:
            called.append(function.__name__)

    sys.setprofile(note)
    try:
        waits.read()
        waits.read()
    finally:
        sys.setprofile(None)
        waits.schedule.close()
    assert called == 2 * ["lseek", "pread"]


def test_a_counter_that_falls_is_no_negative_wait(schedule: Schedule) -> None:
    schedule.says(S)
    schedule.look(2 * S)
    schedule.says(0)
    schedule.look(3 * S)
    assert schedule.waits.total_ns == S


def test_each_thread_has_its_own_schedule() -> None:
    waits = rankscope_probe._CpuWaits()
    places = []

    def watch() -> None:
        waits.watch()
        places.append(Path(f"/proc/self/fd/{waits.schedule.number}").readlink().as_posix())

    watch()
    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert places[0] != places[1]
    assert all(place.endswith("/schedstat") for place in places)
    assert waits.looked_ns < rankscope_probe._NEVER_NS
    waits.schedule.close()


def test_threads_that_have_only_just_begun_are_watched() -> None:
    """Their time on a CPU reads zero until the kernel adds it up: here one in forty does."""
    waits = rankscope_probe._CpuWaits()
    for _ in range(500):
        thread = threading.Thread(target=waits.watch)
        thread.start()
        thread.join()
        assert waits.looked_ns < rankscope_probe._NEVER_NS
    waits.schedule.close()


def test_a_kernel_that_counts_nothing_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rankscope_probe.os, "pread", lambda *_: b"0 0 0\n")
    waits = rankscope_probe._CpuWaits()
    waits.watch()
    assert waits.looked_ns == rankscope_probe._NEVER_NS
    waits.schedule.close()
