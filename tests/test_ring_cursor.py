"""Reading on in a ring: nothing lost, nothing twice, and the count of what was overwritten."""

from __future__ import annotations

import os
import threading

import pytest

from rankscope_agent.sources.training.cursor import (
    Cursor,
    find_newest,
    locate,
    newest_seq,
    read_record,
)
from ring_writer import PAGE, RingWriter, record_bytes

PLENTY = 10**6


@pytest.fixture
def writer(tmp_path):
    ring = RingWriter(tmp_path)
    yield ring
    ring.end()


def read(cursor: Cursor, writer: RingWriter, limit: int = PLENTY) -> list[int]:
    return [r.seq for batch in cursor.read(writer.descriptor, limit) for r in batch]


def located(writer: RingWriter) -> Cursor:
    return locate(writer.descriptor, writer.capacity)


def test_an_empty_ring_gives_nothing_and_its_first_record_once_it_is_written(writer):
    cursor = located(writer)
    assert read(cursor, writer) == []
    assert cursor.at_newest
    writer.step()
    assert read(cursor, writer) == [1]
    assert read(cursor, writer) == []


def test_a_reader_that_keeps_up_reads_every_record_once_over_many_laps(writer):
    cursor = located(writer)
    seen = []
    for count in (1, 16, 3, 15, 16, 16, 7, 16):
        writer.step(count)
        seen += read(cursor, writer)
    assert seen == list(range(1, 91))
    assert (cursor.lost, cursor.corrupt) == (0, 0)


@pytest.mark.parametrize("written", [1, 15, 16, 17, 31, 32, 33, 100, 1000])
def test_a_first_read_begins_at_the_oldest_record_there_is(writer, written):
    writer.step(written)
    cursor = located(writer)
    assert read(cursor, writer) == list(range(max(1, written - 15), written + 1))
    assert cursor.lost == 0


@pytest.mark.parametrize("behind", [16, 17, 18, 31, 32, 33, 160, 161])
def test_overwritten_records_are_counted_exactly(writer, behind):
    writer.step(5)
    cursor = located(writer)
    assert read(cursor, writer) == [1, 2, 3, 4, 5]
    writer.step(behind)
    assert read(cursor, writer) == list(range(5 + behind - 15, 5 + behind + 1))
    assert cursor.lost == behind - 16


def test_a_torn_record_at_the_head_is_read_once_it_is_whole(writer):
    writer.step(3)
    cursor = located(writer)
    writer.write_slot(4, record_bytes(4)[:60])
    assert read(cursor, writer) == [1, 2, 3]
    assert read(cursor, writer) == []
    writer.write_slot(4, record_bytes(4))
    assert read(cursor, writer) == [4]
    assert (cursor.lost, cursor.corrupt) == (0, 0)


DAMAGE = {"ones": b"\xff" * 64, "zeros": bytes(64), "a wrong sum": bytes(range(8)) + b"\1" * 56}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_in_the_middle_is_counted_and_stepped_over(writer, damage):
    writer.step(10)
    writer.write_slot(4, damage)
    writer.write_slot(5, damage)
    cursor = located(writer)
    assert read(cursor, writer) == [1, 2, 3, 6, 7, 8, 9, 10]
    assert (cursor.lost, cursor.corrupt) == (0, 2)


@pytest.mark.parametrize("damaged", [17, 21, 24, 25, 28, 31, 32])
def test_damage_in_a_ring_that_went_round_costs_the_damaged_record_only(writer, damaged):
    writer.step(32)
    writer.write_slot(damaged, b"\xff" * 64)
    cursor = located(writer)
    assert read(cursor, writer) == [seq for seq in range(17, 33) if seq != damaged]
    writer.step(2)
    assert read(cursor, writer) == [33, 34]
    assert cursor.lost == 0
    # A damaged newest record could as well be the oldest one, half overwritten: it counts as both.
    assert cursor.corrupt == (2 if damaged == 32 else 1)


def test_a_number_that_jumps_back_is_not_read_again(writer):
    writer.step(20)
    cursor = located(writer)
    read(cursor, writer)
    for seq in range(1, 9):
        writer.write_slot(seq, record_bytes(seq))
    assert read(cursor, writer) == []
    assert cursor.at_newest


@pytest.mark.parametrize("seq", [6 + 2**48 - 16, 6 + 2**48, 2**64 - 16 + 6])
def test_a_forged_number_far_ahead_is_survived(writer, seq):
    writer.step(5)
    cursor = located(writer)
    read(cursor, writer)
    writer.write_slot(6, record_bytes(seq))
    assert len(read(cursor, writer)) <= 1
    assert read(cursor, writer) == []
    assert cursor.lost < 2**48


def test_a_ring_of_ones_has_no_records(writer):
    for seq in range(1, 17):
        writer.write_slot(seq, b"\xff" * 64)
    cursor = located(writer)
    assert (newest_seq(writer.descriptor, 16), read(cursor, writer)) == (0, [])


def test_a_ring_of_one_record_holds_the_newest(tmp_path):
    ring = RingWriter(tmp_path, capacity=1)
    ring.step(3)
    cursor = located(ring)
    assert read(cursor, ring) == [3]
    ring.step(2)
    assert (read(cursor, ring), cursor.lost) == ([5], 1)
    ring.end()


def test_a_limit_holds_a_look_short_and_the_next_one_goes_on(tmp_path):
    ring = RingWriter(tmp_path, capacity=4096)
    ring.step(3000)
    cursor = located(ring)
    first = read(cursor, ring, 1100)
    assert first == list(range(1, 1101))
    assert not cursor.at_newest
    assert read(cursor, ring) == list(range(1101, 3001))
    assert cursor.at_newest
    ring.end()


def test_a_file_truncated_while_it_is_read_gives_no_more_and_its_later_records_again(writer):
    writer.step(4)
    cursor = located(writer)
    assert read(cursor, writer) == [1, 2, 3, 4]
    os.truncate(writer.path, 0)
    assert read(cursor, writer) == []
    writer.step(2)  # the file grows again, with a hole in front
    assert read(cursor, writer) == [5, 6]


def test_a_file_cut_in_the_middle_of_a_record_gives_the_whole_ones(writer):
    writer.step(4)
    os.truncate(writer.path, PAGE + 2 * 64 + 30)
    assert read(located(writer), writer) == [1, 2]


class ForeverOverrun:
    """A ring whose slots show another lap at each look, as no honest writer can be that fast."""

    def __init__(self, path, monkeypatch):
        self.looks = 0
        path.write_bytes(b"")
        self.descriptor = os.open(path, os.O_RDONLY)
        monkeypatch.setattr("rankscope_agent.sources.training.cursor.os.pread", self.pread)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        self.looks += 1
        assert self.looks < 10_000, "reads without an end"
        first = (offset - PAGE) // 64 + 1 + 16 * self.looks
        return b"".join(record_bytes(first + i) for i in range(size // 64))


def test_a_ring_that_changes_at_every_look_costs_bounded_work(tmp_path, monkeypatch):
    ring = ForeverOverrun(tmp_path / "ring", monkeypatch)
    cursor = Cursor(16, 1)
    list(cursor.read(ring.descriptor, PLENTY))
    assert ring.looks < 200
    assert not cursor.at_newest
    os.close(ring.descriptor)


class HealsAtSecondLook:
    """Shows record 2 missing before record 3 once, as a pread beside two writes may."""

    def __init__(self, monkeypatch):
        self.looks = 0
        monkeypatch.setattr("rankscope_agent.sources.training.cursor.os.pread", self.pread)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        self.looks += 1
        slots = [record_bytes(1), record_bytes(2), record_bytes(3)]
        if self.looks == 1:
            slots[1] = bytes(64)
        whole = b"".join(slots).ljust(16 * 64, b"\0")
        return whole[offset - PAGE : offset - PAGE + size]


def test_a_record_written_while_its_chunk_was_copied_is_not_taken_for_damage(monkeypatch):
    HealsAtSecondLook(monkeypatch)
    cursor = Cursor(16, 1)
    assert [r.seq for batch in cursor.read(-1, PLENTY) for r in batch] == [1, 2, 3]
    assert (cursor.corrupt, cursor.lost) == (0, 0)


def test_the_newest_record_is_found_from_any_that_is_there(writer):
    writer.step(37)
    assert {find_newest(writer.descriptor, seq, 16) for seq in range(22, 38)} == {37}


def test_one_record_is_read_by_its_number_or_is_not_there(writer):
    writer.step(20)
    assert read_record(writer.descriptor, 20, 16).step == 19
    assert read_record(writer.descriptor, 4, 16) is None
    assert read_record(writer.descriptor, 21, 16) is None


def test_a_reader_beside_a_fast_writer_accounts_for_every_record(tmp_path):
    ring = RingWriter(tmp_path, capacity=64)
    cursor = located(ring)
    thread = threading.Thread(target=ring.step, args=(20_000,))
    thread.start()
    seen = []
    while thread.is_alive():
        seen += read(cursor, ring)
    thread.join()
    seen += read(cursor, ring)
    assert seen == sorted(set(seen))
    assert len(seen) + cursor.lost == seen[-1] == 20_000
    assert cursor.corrupt == 0
    ring.end()
