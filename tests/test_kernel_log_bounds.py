"""The last that is still taken and the first that is not, of each limit on kernel logs."""

from __future__ import annotations

import itertools
import os
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernel_log_nodes import UPTIME, Log, node, opened, page
from kernel_text import xid
from rankscope_agent.contract.kernel.log import read
from rankscope_agent.sources.kernel_log import journal, kmsg, reboots
from rankscope_agent.sources.kernel_log.gpus import gpu_names
from rankscope_agent.sources.kernel_log.journal import JournalFile, JournalSource
from rankscope_agent.sources.kernel_log.records import Batch, Record, parse_klog, parse_kmsg
from rankscope_agent.sources.kernel_log.syslog_call import SyslogCallSource
from rankscope_agent.sources.kernel_log.tally import StateError, Tally, from_json
from rankscope_agent.sources.sealed_state import unsealed
from standing_clock import Clock

__all__ = ["node"]


class Counting(Log):
    """A log that knows how often it was looked at."""

    looks = 0

    def read(self, cursor):
        self.looks += 1
        return super().read(cursor)


@pytest.mark.parametrize(("name", "seconds"), [("kmsg", 1.0), ("syslog", 5.0), ("journal", 5.0)])
def test_a_source_is_looked_at_as_often_as_it_costs(node, name, seconds):
    clock, log = Clock(), Counting(name=name)
    collector = opened(replace(node, clock=clock), log)
    for later, looks in ((0.0, 1), (seconds - 0.1, 1), (0.2, 2)):
        clock.now += later
        page(collector)
        assert log.looks == looks


def test_gpus_are_asked_for_their_names_once_a_minute(node):
    clock = Clock()
    collector = opened(replace(node, clock=clock), Log(xid(79, pci="0000:5d:00")))

    def named():
        (name,) = (key for key in page(collector) if key[0] == "rankscope_gpu_xid_errors_total")
        return name[2]

    assert named() == ""
    card = node.procfs / "driver" / "nvidia" / "gpus" / "0000:5d:00.0"
    card.mkdir()
    (card / "information").write_text(f"GPU UUID: GPU-{'0' * 8}-1111-2222-3333-{'5' * 12}\n")
    clock.now += 59.0
    assert named() == ""
    clock.now += 2.0
    assert named().endswith("5")


def test_counts_are_saved_every_ten_seconds(node):
    clock, log = Clock(), Log()
    collector = opened(replace(node, clock=clock), log)
    page(collector)
    first = node.state_file.read_bytes()
    log.messages.append(xid(79))
    clock.now += 9.0
    page(collector)
    assert node.state_file.read_bytes() == first
    clock.now += 2.0
    page(collector)
    assert node.state_file.read_bytes() != first


@pytest.mark.parametrize(("size", "goes_on"), [(4 << 20, True), ((4 << 20) + 8, False)])
def test_four_mebibytes_are_read_of_saved_counts(node, size, goes_on):
    page(opened(node, Log(xid(79))))
    saved = unsealed(node.state_file.read_bytes())
    node.state_file.write_bytes(saved[:1] + b" " * (size - len(saved)) + saved[1:])
    found = page(opened(node, Log()))
    assert any(key[0] == "rankscope_gpu_xid_errors_total" for key in found) is goes_on


@pytest.mark.parametrize(("age", "asked"), [(9.9, [71]), (10.1, [])])
def test_processes_of_events_are_sought_for_ten_seconds(node, age, asked):
    sought = []
    line = "Out of memory: Killed process 71 (trainer) total-vm:1kB"
    log = Log()
    log.read = lambda cursor: Batch([Record(1, UPTIME - age, line.encode())], {}, 0)
    page(opened(replace(node, pod_of=lambda pid: sought.append(pid) or ""), log))
    assert sought == asked


def test_64_gpus_have_names(tmp_path):
    for index in range(65):
        (tmp_path / "driver" / "nvidia" / "gpus" / f"0000:{index:02x}:00.0").mkdir(parents=True)
    assert len(gpu_names(tmp_path)) == 64


def test_4096_bytes_are_kept_of_a_record():
    (from_ring,) = parse_klog(b"<4>[ 1.000001] " + b"a" * 5000)
    from_device = parse_kmsg(b"4,1,1000001,-;" + b"a" * 5000)
    assert (len(from_ring.text), len(from_device.text)) == (4096, 4096)


def test_20000_records_are_taken_at_once(monkeypatch):
    numbers = itertools.count()
    source = kmsg.KmsgSource.__new__(kmsg.KmsgSource)
    source._peeked = b""
    source._read = lambda: b"4,%d,1,-;x" % next(numbers)
    assert len(source.read({}).records) == 20_000


def test_a_ring_of_32_mebibytes_is_read():
    sizes = []

    def call(action, size):
        sizes.append(size)
        return str(1 << 30) if action == 10 else b""

    SyslogCallSource(call).read({})
    assert sizes[-1] == 32 << 20


def test_512_records_of_logins_are_looked_at(tmp_path):
    shutdown = struct.pack("<h", 1).ljust(44, b"\0") + b"shutdown".ljust(296, b"\0")
    shutdown += struct.pack("<i", 77).ljust(44, b"\0")
    assert len(shutdown) == 384
    for after, known in ((511, 77.0), (512, 0.0)):
        (tmp_path / "wtmp").write_bytes(shutdown + bytes(384 * after))
        assert reboots.last_shutdown(tmp_path / "wtmp") == known


@pytest.mark.parametrize(("before", "ended"), [(1023, "crashed"), (1024, "unknown")])
def test_1024_dumps_are_looked_at(tmp_path, monkeypatch, before, ended):
    def entry(name):
        return SimpleNamespace(
            name=name, stat=lambda follow_symlinks: SimpleNamespace(st_mtime=9.0)
        )

    class Folder(list):
        def __enter__(self):
            return iter(self)

        def __exit__(self, *error):
            return None

    listed = [*map(entry, ["console"] * before), entry(reboots.DUMP + "0")]
    monkeypatch.setattr(os, "scandir", lambda folder: Folder(listed))
    assert reboots.ended(tmp_path, tmp_path / "none", 5.0) == ended


def oom(number):
    return read(f"Memory cgroup out of memory: Killed process {number} (a) total-vm:1kB".encode())


def scope(number):
    group = f"/kubepods/burstable/pod0f9d2c1e-7a51-4b7e-9a35-{number:012d}/x"
    return read(
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg={group},"
        f"task_memcg={group},task=a,pid={number},uid=0".encode()
    )


@pytest.mark.parametrize(("victims", "known"), [(256, True), (257, False)])
def test_256_victims_are_remembered_until_their_kill_is_told(victims, known):
    tally = Tally()
    for number in range(1, victims + 1):
        tally.add(scope(number), 1.0, "")
    tally.add(oom(1), 2.0, "")
    ((_, pod),) = tally.ooms
    assert bool(pod) is known


def test_counts_of_the_version_before_pods_are_taken_and_no_older_ones():
    tally = Tally()
    tally.add(read(xid(79).encode()), 1.0, "")
    state = tally.to_json()
    del state["ooms"], state["pod_times"]
    assert from_json(state | {"version": 2}).xids == tally.xids
    for version in (1, 4):
        with pytest.raises(StateError):
            from_json(tally.to_json() | {"version": version})
    assert from_json(tally.to_json() | {"version": 3}).xids == tally.xids


class Sections(JournalFile):
    """A journal of entry arrays in memory."""

    def __init__(self, arrays, compact=False):
        self.header = journal.Header("id", compact, sum(map(len, arrays)), 1)
        self._width = 4 if compact else 8
        self._arrays = dict(enumerate(arrays, 1))

    def _object(self, offset, kind):
        return 0, 24 + self._width * len(self._arrays[offset])

    def _bytes(self, offset, size):
        number = (offset - 16) if size == 8 and offset - 16 in self._arrays else None
        if number is not None:
            return struct.pack("<Q", number + 1 if number + 1 in self._arrays else 0)
        raise AssertionError("arrays are passed over here")


class Backlog:
    """A journal's file with some entries, none of them the kernel's."""

    def __init__(self, entries):
        self.header = journal.Header("id", False, entries, 1)
        self.asked = None

    def messages(self, skip, boot, limit):
        self.asked = skip, limit
        return iter(())


@pytest.mark.parametrize(
    ("entries", "cursor", "asked"),
    [
        (20_000, {}, (0, 20_000)),
        (20_001, {}, (1, 20_000)),
        (30_000, {"id": 9}, (9, 2_000)),
    ],
)
def test_a_journal_begins_20000_entries_before_its_end_and_goes_on_by_2000(entries, cursor, asked):
    source = JournalSource.__new__(JournalSource)
    source._boot = "boot"
    file = Backlog(entries)
    source._read_file(file, cursor, [], {})
    assert file.asked == asked


def test_the_newest_64_files_of_a_journal_are_read(tmp_path):
    (tmp_path / "machine").mkdir()
    for index in range(65):
        (tmp_path / "machine" / f"system@{index:03d}.journal").touch()
    names = [path.name for path in JournalSource(tmp_path, "boot")._files()]
    assert (len(names), names[0]) == (64, "system@001.journal")


def test_the_file_that_journald_writes_is_read_however_many_archived_ones_there_are(tmp_path):
    (tmp_path / "machine").mkdir()
    for index in range(65):
        name = f"system@{99 - index:032x}-{1:016x}-{index:016x}.journal"
        (tmp_path / "machine" / name).touch()
    (tmp_path / "machine" / "system.journal").touch()
    names = [path.name for path in JournalSource(tmp_path, "boot")._files()]
    assert (len(names), names[-1]) == (64, "system.journal")
    assert names[0].endswith(f"-{2:016x}.journal"), "the oldest ones are left out"


class Objects(JournalFile):
    """A journal whose objects a test gives by offset: flags and payload."""

    def __init__(self, objects):
        self.header = journal.Header("id", False, 1, 1)
        self._width, self._kernel_at, self._objects = 8, 0, objects

    def close(self):
        """Nothing is open."""

    def _object(self, offset, kind):
        flags, data = self._objects[offset]
        return flags, 64 + len(data)

    def _bytes(self, offset, size):
        start = max(at for at in self._objects if at <= offset)
        whole = bytes(64) + self._objects[start][1]
        if kind_of(start) == "entry":
            whole = bytes(16) + self._objects[start][1]
        return whole[offset - start : offset - start + size]


def kind_of(offset):
    return "entry" if offset == 0 else "data"


@pytest.mark.parametrize("flags", [0, 1, 2, 4, 8])
def test_compressed_objects_are_passed_over_by_any_of_three_flags(flags):
    made = Objects({1000: (flags, journal.MESSAGE + b"text")})
    expected = b"text" if flags in (0, 8) else None
    assert made._payload(1000, journal.MESSAGE) == expected


def test_4096_bytes_are_read_of_a_message():
    made = Objects({1000: (0, journal.MESSAGE + b"a" * 5000)})
    assert len(made._payload(1000, journal.MESSAGE)) == 4096


@pytest.mark.parametrize(("fields", "known"), [(64, True), (65, False)])
def test_64_fields_of_an_entry_are_looked_at(fields, known):
    at = [1000 + 100 * index for index in range(fields)]
    entry = struct.pack("<QQQ", 1, 0, 5_000_000) + bytes(24)
    entry += b"".join(struct.pack("<QQ", offset, 0) for offset in at)
    objects = {0: (0, entry)} | dict.fromkeys(at, (0, b"OTHER=1"))
    objects[at[0]] = (0, journal.KERNEL)
    objects[at[-1]] = (0, journal.MESSAGE + b"text")
    made = Objects(objects)
    made._object = lambda offset, kind: (
        objects[offset][0],
        (16 if offset == 0 else 64) + len(objects[offset][1]),
    )
    found = made._record(0, "0" * 32)
    assert (found is not None) is known


class Array(JournalFile):
    """One array of any length, all of whose entries lie at offset 7."""

    def __init__(self, items):
        self.header = journal.Header("id", False, items, 100)
        self._width, self._items = 8, items

    def _object(self, offset, kind):
        return 0, 24 + self._width * self._items

    def _bytes(self, offset, size):
        following = offset == 100 + 16
        return struct.pack("<Q", 0) if following else struct.pack("<Q", 7) * (size // 8)


def test_an_array_is_read_up_to_four_million_entries():
    most = 4_194_304
    made = Array(most + 1)
    assert list(made._entries(most - 1, 5)) == [7]
    assert list(made._entries(most, 5)) == []
