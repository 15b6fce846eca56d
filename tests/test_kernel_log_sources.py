"""The three ways to the kernel's log: every record once, lost ones counted, garbage survived."""

from __future__ import annotations

import errno
import gzip
import os
import socket
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_text import xid
from rankscope_agent.contract.kernel.log import read
from rankscope_agent.sources.kernel_log.journal import JournalError, JournalFile, JournalSource
from rankscope_agent.sources.kernel_log.kmsg import KmsgSource, open_kmsg
from rankscope_agent.sources.kernel_log.records import parse_klog, parse_kmsg
from rankscope_agent.sources.kernel_log.syslog_call import READ_ALL, SIZE_BUFFER, SyslogCallSource

JOURNALS = Path(__file__).parent / "fixtures" / "journal"
BOOT = "12dffa6b-0488-473e-ac4e-3c1cd69cc5a6"


class Ring:
    """A /dev/kmsg: hands out a record for each read, or the error that stands in its place."""

    def __init__(self, *records: bytes | int) -> None:
        self.records = list(records)

    def read(self, descriptor: int, size: int) -> bytes:
        if not self.records:
            raise BlockingIOError
        record = self.records.pop(0)
        if isinstance(record, int):
            raise OSError(record, os.strerror(record))
        assert len(record) <= size
        return record


def record(sequence: int, text: str = "x", priority: int = 4) -> bytes:
    return f"{priority},{sequence},{sequence * 1000},-;{text}\n SUBSYSTEM=pci\n".encode()


def test_each_record_is_read_once():
    ring = Ring(record(5), record(6))
    source = KmsgSource(0, ring.read)
    first = source.read({})
    assert [r.position for r in first.records] == [5, 6]
    ring.records.append(record(7))
    second = source.read(first.cursor)
    assert [r.position for r in second.records] == [7]
    assert (first.lost, second.lost) == (0, 0)


def test_a_new_reader_goes_on_behind_its_cursor():
    source = KmsgSource(0, Ring(*(record(n) for n in range(10))).read)
    batch = source.read({"sequence": 6})
    assert [r.position for r in batch.records] == [7, 8, 9]
    assert batch.lost == 0


def test_overwritten_records_are_counted_by_the_gap():
    ring = Ring(record(5), errno.EPIPE, errno.EPIPE, record(42))
    batch = KmsgSource(0, ring.read).read({"sequence": 4})
    assert [r.position for r in batch.records] == [5, 42]
    assert batch.lost == 36


def test_garbage_records_are_passed_over():
    ring = Ring(b"\xff\x00;;", b"4", b"a,b,c;d", record(9), b"4,10,5,-;" + b"\xff" * 4000)
    batch = KmsgSource(0, ring.read).read({})
    assert [r.position for r in batch.records] == [9, 10]


def test_what_a_program_writes_to_the_device_is_not_the_kernels():
    forged = parse_kmsg(record(1, xid(79), priority=12))
    assert forged is not None
    assert forged.text == b""
    assert [r.text for r in parse_klog(b"<12>[    1.000000] x\n<4>[    1.000001] y")] == [b"", b"y"]


def test_the_descriptor_honours_the_framing_of_records():
    kernel, reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader.setblocking(False)
    with kernel, reader:
        kernel.send(record(1, xid(79)))
        kernel.send(record(2, xid(45)))
        batch = KmsgSource(os.dup(reader.fileno())).read({})
        assert [read(r.text).code for r in batch.records] == [79, 45]


def test_a_device_that_may_not_be_read_is_refused_when_it_is_opened(tmp_path):
    with pytest.raises(OSError, match="not permitted"):
        KmsgSource(os.open(os.devnull, os.O_RDONLY), Ring(errno.EPERM).read)
    link = tmp_path / "kmsg"
    link.symlink_to("/dev/kmsg")
    with pytest.raises(OSError, match="symbolic links"):
        open_kmsg(link)


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg is not readable here")
def test_the_running_kernels_device_is_read():
    try:
        source = KmsgSource(open_kmsg(Path("/dev/kmsg")))
    except OSError as error:
        pytest.skip(f"/dev/kmsg: {error}")
    batch = source.read({})
    source.close()
    assert batch.records
    assert [r.position for r in batch.records] == sorted({r.position for r in batch.records})


def test_the_running_kernels_ring_is_read_by_call():
    try:
        source = SyslogCallSource()
    except OSError as error:
        pytest.skip(f"syslog(2): {error}")
    first = source.read({})
    assert first.records
    assert len(source.read(first.cursor).records) <= len(first.records)


class Calls:
    """klogctl over a text."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def __call__(self, action: int, size: int) -> bytes:
        assert action in {READ_ALL, SIZE_BUFFER}
        text = "\n".join(self.lines).encode()
        return b"65536" if action == SIZE_BUFFER else text[-size:]


def test_time_stamps_tell_what_is_new_and_equal_ones_are_told_apart():
    calls = Calls("<4>[    1.000000] a", "<4>[    1.000001] b", "<4>[    1.000001] c")
    source = SyslogCallSource(calls)
    first = source.read({})
    assert [r.text for r in first.records] == [b"a", b"b", b"c"]
    calls.lines += ["<4>[    1.000001] d", "<4>[    2.000000][   T12] e"]
    second = source.read(first.cursor)
    assert [r.text for r in second.records] == [b"d", b"e"]
    assert source.read(second.cursor).records == []
    assert second.lost == 0


def test_a_ring_that_has_turned_over_counts_as_a_loss():
    calls = Calls("<4>[    1.000000] a")
    source = SyslogCallSource(calls)
    cursor = source.read({}).cursor
    calls.lines = ["<4>[    5.000000] b"]
    batch = source.read(cursor)
    assert (len(batch.records), batch.lost) == (1, 1)


@pytest.fixture(params=["regular", "compact"])
def journal(request, tmp_path) -> Path:
    folder = tmp_path / "journal" / "0123456789abcdef0123456789abcdef"
    folder.mkdir(parents=True)
    packed = (JOURNALS / f"{request.param}.journal.gz").read_bytes()
    (folder / "system.journal").write_bytes(gzip.decompress(packed))
    return tmp_path / "journal"


def test_journals_of_both_layouts_give_the_kernels_messages_of_this_boot(journal):
    source = JournalSource(journal, BOOT)
    batch = source.read({})
    codes = Counter(event.code for r in batch.records if (event := read(r.text)) is not None)
    assert codes == {13: 50, 79: 1}
    assert len(batch.records) == 151
    assert source.read(batch.cursor).records == []
    assert batch.records[-1].seconds == pytest.approx(5.402)


def test_reading_a_journal_goes_on_where_it_ended(journal):
    source = JournalSource(journal, BOOT)
    (file_id,) = source.read({}).cursor
    assert len(source.read({file_id: 290}).records) == 6
    assert source.read({file_id: 10**9}).records == []


def test_a_device_that_cannot_be_read_leaves_no_descriptor_open():
    descriptor = os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(OSError, match="Is a directory"):
        KmsgSource(descriptor, Ring(errno.EISDIR).read)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_journal_that_could_not_be_opened_for_a_while_is_not_read_anew(journal):
    (live,) = journal.glob("*/system.journal")
    archived = live.with_name(f"system@{0:032x}-{1:016x}-{2:016x}.journal")
    archived.write_bytes(live.read_bytes())
    (live.parent / "system.journal").write_bytes(other_file(live.read_bytes()))
    source = JournalSource(journal, BOOT)
    batch = source.read({})
    assert len(batch.records) == 2 * 151
    archived.rename(journal / "away")
    batch = source.read(batch.cursor)
    (journal / "away").rename(archived)
    assert source.read(batch.cursor).records == []


def other_file(data: bytes) -> bytes:
    """Return the same journal under another file id."""
    return data[:24] + bytes(16) + data[40:]


def test_places_of_128_files_are_kept(journal):
    old = {f"{n:032x}": n for n in range(200)}
    cursor = JournalSource(journal, BOOT).read(old).cursor
    assert list(cursor)[:-1] == list(old)[-127:]


@pytest.mark.parametrize("live", [b"garbage" * 100, None])
def test_a_journal_whose_live_file_cannot_be_read_is_a_failure_that_says_so(journal, live):
    (path,) = journal.glob("*/system.journal")
    path.rename(path.with_name(f"system@{0:032x}-{1:016x}-{2:016x}.journal"))
    if live is not None:
        path.write_bytes(live)
    source = JournalSource(journal, BOOT)
    why = "lacks a journal's signature" if live else "there is no system.journal"
    with pytest.raises(OSError, match=f"no kernel messages can be read in .*{why}"):
        source.read({})


def test_a_folder_without_a_journal_is_refused(tmp_path):
    with pytest.raises(OSError, match="no journal"):
        JournalSource(tmp_path, BOOT)


@settings(max_examples=120)
@given(
    damage=st.lists(
        st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=16)), max_size=6
    ),
    tail=st.booleans(),
    cut=st.one_of(st.none(), st.integers(0, 4_000_000)),
)
def test_a_damaged_journal_raises_nothing_but_its_own_error(damage, tail, cut, tmp_path_factory):
    data = bytearray(DECOMPRESSED[:4_000_000])
    base = 3_730_000 if tail else 0
    for at, text in damage:
        data[base + at : base + at + len(text)] = text
    path = tmp_path_factory.mktemp("damaged") / "system.journal"
    path.write_bytes(data if cut is None else data[:cut])
    try:
        file = JournalFile(path)
    except JournalError:
        return
    try:
        assert len(list(file.messages(0, BOOT, 1000))) <= 1000
    except JournalError:
        pass
    finally:
        file.close()


DECOMPRESSED = gzip.decompress((JOURNALS / "regular.journal.gz").read_bytes())
