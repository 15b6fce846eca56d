"""Reads kernel messages from journald's files: needs only read access to /var/log/journal.

The format is that of https://systemd.io/JOURNAL_FILE_FORMAT: a header, then objects, of which entry
arrays point to entries and these to data. Files are only read, and never trusted: every offset and
size is checked. Messages compressed by journald (from 512 bytes on by default) are not read; the
relevant lines of the kernel are shorter.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.sources.kernel_log.records import MAX_TEXT_BYTES, Batch, Record

SIGNATURE = b"LPKSHHRH"
COMPACT = 1 << 4  # HEADER_INCOMPATIBLE_COMPACT: offsets of 32 bits
COMPRESSED = 0x07  # OBJECT_COMPRESSED_XZ, _LZ4 and _ZSTD
DATA, ENTRY, ENTRY_ARRAY = 1, 3, 6

HEADER_BYTES = 240
ENTRY_BYTES = 64  # an entry without fields
MAX_ITEMS = 64  # fields of an entry; the kernel's have about 20
MAX_ARRAY_ITEMS = 1 << 22
MAX_BACKLOG = 20_000
"""Entries read from a new file: some 0.3 s of CPU, and days of a quiet node."""

MAX_ENTRIES = 2_000
"""Entries read per file in one reading: some 30 ms of CPU."""

MAX_FILES = 64
MAX_CURSORS = 2 * MAX_FILES
"""Files whose place is kept, also while one cannot be opened: it is not read anew after that."""

LIVE = "system.journal"
"""The file that journald appends to; the archived ones do not change."""

KERNEL = b"_TRANSPORT=kernel"
MESSAGE = b"MESSAGE="


class JournalError(ValueError):
    """A file is not a journal, or is damaged where it is read."""


@dataclass(frozen=True, slots=True)
class Header:
    """The relevant parts of a journal's header."""

    file_id: str
    compact: bool
    entries: int
    first_array: int


class JournalFile:
    """One file, opened for one reading.

    Raises:
        OSError: it cannot be opened.
        JournalError: it is not a journal.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        self._size = os.fstat(self._descriptor).st_size
        try:
            self.header = self._read_header()
        except (OSError, JournalError):
            self.close()
            raise
        self._width = 4 if self.header.compact else 8
        self._kernel_at = 0

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

    def messages(self, skip: int, boot: str, limit: int) -> Iterator[Record | None]:
        """Yield a record for each entry after the first `skip`; None if it is not the kernel's.

        Raises:
            JournalError: it is damaged.
        """
        for offset in self._entries(skip, limit):
            yield self._record(offset, boot)

    def _bytes(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset) if offset + size <= self._size else b""
        if len(data) < size:
            raise JournalError(f"ends before byte {offset + size}")
        return data

    def _read_header(self) -> Header:
        data = self._bytes(0, HEADER_BYTES)
        if not data.startswith(SIGNATURE):
            raise JournalError("lacks a journal's signature")
        flags = struct.unpack_from("<I", data, 12)[0]
        entries, first_array = (struct.unpack_from("<Q", data, at)[0] for at in (152, 176))
        return Header(data[24:40].hex(), bool(flags & COMPACT), entries, first_array)

    def _object(self, offset: int, kind: int) -> tuple[int, int]:
        """Return flags and size of an object of the expected type."""
        found, flags, size = struct.unpack("<BB6xQ", self._bytes(offset, 16))
        if found != kind or size < 16:
            raise JournalError(f"has object {found} of {size} bytes at {offset}, expected {kind}")
        return flags, size

    def _entries(self, skip: int, limit: int) -> Iterator[int]:
        """Yield offsets of entries; arrays double in size, so skipping them is cheap."""
        array, left = self.header.first_array, min(limit, self.header.entries - skip)
        while array and left > 0:
            _, size = self._object(array, ENTRY_ARRAY)
            following = struct.unpack("<Q", self._bytes(array + 16, 8))[0]
            items = min((size - 24) // self._width, MAX_ARRAY_ITEMS)
            if skip >= items:
                skip -= items
            else:
                count = min(items - skip, left)
                data = self._bytes(array + 24 + skip * self._width, count * self._width)
                yield from (offset for (offset,) in struct.iter_unpack(self._offset, data))
                left, skip = left - count, 0
            if following <= array and following:
                raise JournalError(f"has an entry array at {following} after {array}")
            array = following

    @property
    def _offset(self) -> str:
        return "<I" if self.header.compact else "<Q"

    def _record(self, offset: int, boot: str) -> Record | None:
        _, size = self._object(offset, ENTRY)
        if size < ENTRY_BYTES:
            raise JournalError(f"has an entry of {size} bytes at {offset}")
        step = 4 if self.header.compact else 16
        count = min((size - ENTRY_BYTES) // step, MAX_ITEMS)
        data = self._bytes(offset + 16, 48 + count * step)
        sequence, _, monotonic = struct.unpack_from("<QQQ", data)
        items = [struct.unpack_from(self._offset, data, 48 + n * step)[0] for n in range(count)]
        if data[24:40].hex() != boot.replace("-", "") or not self._is_kernel(items):
            return None
        for item in items:
            text = self._payload(item, MESSAGE)
            if text is not None:
                return Record(sequence, monotonic / 1e6, text.replace(b"\n", b" "))
        return None

    def _is_kernel(self, items: list[int]) -> bool:
        """Return True if an entry is the kernel's: equal fields are stored once, at one offset."""
        if self._kernel_at:
            return self._kernel_at in items
        found = next((item for item in items if self._payload(item, KERNEL) == b""), 0)
        self._kernel_at = found
        return bool(found)

    def _payload(self, offset: int, start: bytes) -> bytes | None:
        """Return what follows the prefix in a data object; None if it begins otherwise."""
        flags, size = self._object(offset, DATA)
        at = 72 if self.header.compact else 64
        length = min(size - at, len(start) + MAX_TEXT_BYTES)
        if flags & COMPRESSED or length < len(start):
            return None
        if self._bytes(offset + at, len(start)) != start:
            return None
        return self._bytes(offset + at + len(start), length - len(start))


class JournalSource:
    """The journals below a directory, which may be of several machines; only this boot is read.

    Args:
        folder: journald's directory, which has one subdirectory per machine id.
        boot: the running kernel's boot id: messages of earlier boots are not read.

    Raises:
        OSError: there is no readable journal.
    """

    name = "journal"

    def __init__(self, folder: Path, boot: str) -> None:
        self._folder = folder
        self._boot = boot
        if not self._files():
            raise FileNotFoundError(f"no journal in {folder}")

    def _files(self) -> list[Path]:
        """Return the newest files, the live ones last."""
        archived = sorted(self._folder.glob("*/system@*.journal"), key=_archived_at)
        return [*archived, *self._folder.glob(f"*/{LIVE}")][-MAX_FILES:]

    def read(self, cursor: Mapping[str, int]) -> Batch:
        """Return the kernel's messages in entries that were not read yet.

        A damaged file is read as far as possible. Archived files may be removed meanwhile.

        Raises:
            OSError: none of the files that journald appends to can be read.
        """
        records: list[Record] = []
        after = dict(cursor)
        live, complaint = False, f"there is no {LIVE}"
        for path in self._files():
            try:
                file = JournalFile(path)
            except (OSError, JournalError) as error:
                complaint = f"{path}: {error}"
                continue
            live = live or path.name == LIVE
            try:
                self._read_file(file, cursor, records, after)
            finally:
                file.close()
        if not live:
            raise OSError(f"no kernel messages can be read in {self._folder}: {complaint}")
        kept = dict(list(after.items())[-MAX_CURSORS:])
        return Batch(sorted(records, key=lambda one: one.seconds), kept, 0)

    def _read_file(
        self,
        file: JournalFile,
        cursor: Mapping[str, int],
        records: list[Record],
        after: dict[str, int],
    ) -> None:
        known = cursor.get(file.header.file_id)
        skip = max(0, file.header.entries - MAX_BACKLOG) if known is None else known
        limit = MAX_BACKLOG if known is None else MAX_ENTRIES
        done = skip
        try:
            for record in file.messages(skip, self._boot, limit):
                done += 1
                if record is not None:
                    records.append(record)
        except (OSError, JournalError):
            done = file.header.entries
        after.pop(file.header.file_id, None)
        after[file.header.file_id] = done

    def close(self) -> None:
        """Do nothing: files are closed after each reading."""


def _archived_at(path: Path) -> str:
    """Return when a file was archived: its name ends with the time of its first entry, in hex."""
    return path.stem.rpartition("-")[2]
