"""The directory of a zip archive, as torch.save writes it: names, offsets, sizes, checksums.

Only the directory at the end is read. It is checked against the archive: members are inside it and
contiguous, and it ends where the file ends. APPNOTE.TXT 6.3.10 of PKWARE, sections 4.3 to 4.5.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from rankscope_analyzers.checkpoints.problems import FileProblem
from rankscope_analyzers.checkpoints.stretch import Stretch

MAGIC = b"PK\x03\x04"
_END = struct.Struct("<4s4H2IH")
_END_MAGIC = b"PK\x05\x06"
_LOCATOR = struct.Struct("<4sIQI")
_LOCATOR_MAGIC = b"PK\x06\x07"
_END_64 = struct.Struct("<4sQ2H2I4Q")
_END_64_MAGIC = b"PK\x06\x06"
_ENTRY = struct.Struct("<4s6H3I5H2I")
_ENTRY_MAGIC = b"PK\x01\x02"
_LOCAL = struct.Struct("<4s5H3I2H")
_FULL = 0xFFFFFFFF

MAX_COMMENT_BYTES = 0xFFFF
MAX_DIRECTORY_BYTES = 128 << 20
"""Bytes; a million members with names of 80 bytes; a model of a million tensors has fewer."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the archive; `offset` is that of its local header."""

    name: str
    offset: int
    size: int
    stored: bool
    checksum: int


def members(archive: Stretch) -> Mapping[str, Member]:
    """Return an archive's members by name.

    Raises:
        FileProblem: it has no end, or its directory does not match it.
    """
    begin, size, count, limit = _directory(archive)
    if size > MAX_DIRECTORY_BYTES:
        raise FileProblem("too_large", f"has an archive directory of {size} bytes")
    if begin + size > limit or begin < 0:
        raise FileProblem("unparseable", "has an archive directory that begins after its own end")
    listed = _entries(archive.read(begin, size), count)
    _check_places(listed, begin)
    return {member.name: member for member in listed}


def content(archive: Stretch, member: Member) -> Stretch:
    """Return the offset of a member's bytes, from its own header.

    Raises:
        FileProblem: the header belongs to another member.
    """
    head = archive.read(member.offset, _LOCAL.size)
    if len(head) < _LOCAL.size or head[:4] != MAGIC:
        raise FileProblem("unparseable", f"has no member where {member.name} should begin")
    *_, name_size, extra_size = _LOCAL.unpack(head)
    name = archive.read(member.offset + _LOCAL.size, name_size)
    if name.decode("utf-8", "backslashreplace") != member.name:
        raise FileProblem("unparseable", f"has another member where {member.name} should begin")
    return archive.part(member.offset + _LOCAL.size + name_size + extra_size, member.size)


def check_checksum(archive: Stretch, member: Member) -> None:
    """Read a stored member and compare its CRC-32.

    Raises:
        FileProblem: it differs, or the member cannot be read.
    """
    checksum = 0
    for chunk in content(archive, member).chunks():
        checksum = zlib.crc32(chunk, checksum)
    if checksum != member.checksum:
        raise FileProblem(
            "checksum",
            f"has changed bytes in {member.name}: CRC-32 {checksum:08x} instead of"
            f" {member.checksum:08x}",
        )


def _directory(archive: Stretch) -> tuple[int, int, int, int]:
    """Return the directory's offset, size and number of entries, and where it must end."""
    tail = archive.read(max(archive.size - _END.size, 0), _END.size)
    place = archive.size - _END.size
    if tail[:4] != _END_MAGIC or len(tail) < _END.size:
        place, tail = _end_before(archive)
    _, _, _, _, count, size, begin, comment = _END.unpack(tail)
    behind = archive.size - place - _END.size - comment
    if behind > 0:
        raise FileProblem("wrong_size", f"has {behind} bytes after its end")
    if behind < 0:
        raise FileProblem("truncated", f"lacks the last {-behind} bytes")
    if _FULL in {size, begin} or count == 0xFFFF:
        return _directory_64(archive, place)
    return begin, size, count, place


def _end_before(archive: Stretch) -> tuple[int, bytes]:
    """Return the end of the archive if it is not at the end of the file."""
    first = max(archive.size - _END.size - MAX_COMMENT_BYTES, 0)
    tail = archive.read(first, archive.size - first)
    index = tail.rfind(_END_MAGIC, 0, max(len(tail) - _END.size + 4, 0))
    if index < 0:
        raise FileProblem("truncated", f"has no end of archive in its {archive.size} bytes")
    return first + index, tail[index : index + _END.size]


def _directory_64(archive: Stretch, end: int) -> tuple[int, int, int, int]:
    head = archive.read(end - _LOCATOR.size, _LOCATOR.size)
    if len(head) < _LOCATOR.size or head[:4] != _LOCATOR_MAGIC:
        raise FileProblem("unparseable", "lacks the locator of its 64-bit directory")
    place = _LOCATOR.unpack(head)[2]
    record = archive.read(place, _END_64.size)
    if len(record) < _END_64.size or record[:4] != _END_64_MAGIC:
        raise FileProblem("unparseable", "lacks the end of its 64-bit directory")
    *_, count, size, begin = _END_64.unpack(record)
    return begin, size, count, place


def _entries(directory: bytes, count: int) -> list[Member]:
    listed: list[Member] = []
    place = 0
    while place < len(directory) and len(listed) < count:
        head = directory[place : place + _ENTRY.size]
        if len(head) < _ENTRY.size or head[:4] != _ENTRY_MAGIC:
            raise FileProblem("unparseable", f"has no entry {len(listed)} in its directory")
        member, place = _entry(directory, place, head)
        listed.append(member)
    if len(listed) != count:
        raise FileProblem("unparseable", f"lists {len(listed)} members instead of {count}")
    return listed


def _entry(directory: bytes, place: int, head: bytes) -> tuple[Member, int]:
    fields = _ENTRY.unpack(head)
    method, checksum, packed, size = fields[4], *fields[7:10]
    name_size, extra_size, comment_size = fields[10:13]
    offset = fields[16]
    name_end = place + _ENTRY.size + name_size
    if _FULL in {packed, size, offset}:
        extra = directory[name_end : name_end + extra_size]
        size, packed, offset = _wide(extra, size, packed, offset)
    name = directory[place + _ENTRY.size : name_end].decode("utf-8", "backslashreplace")
    return (
        Member(name, offset, packed, method == 0, checksum),
        name_end + extra_size + comment_size,
    )


def _wide(extra: bytes, *narrow: int) -> tuple[int, int, int]:
    """Return size, packed size and offset from the zip64 field, which holds those that overflow."""
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, place)
        if kind == 1:
            body = extra[place + 4 : place + 4 + length]
            values = iter(struct.unpack(f"<{len(body) // 8}Q", body[: len(body) // 8 * 8]))
            size, packed, offset = (next(values, 0) if old == _FULL else old for old in narrow)
            return size, packed, offset
        place += 4 + length
    raise FileProblem("unparseable", "lacks the 64-bit sizes of a member")


def _check_places(listed: list[Member], limit: int) -> None:
    """Compare the members' offsets.

    Raises:
        FileProblem: two overlap, or one is after the last.
    """
    least = _LOCAL.size
    ordered = sorted(listed, key=lambda member: member.offset)
    ends = [member.offset for member in ordered[1:]] + [limit]
    for member, end in zip(ordered, ends, strict=True):
        if member.offset + least + len(member.name) + member.size > end:
            raise FileProblem(
                "wrong_size", f"has no room for the {member.size} bytes of {member.name}"
            )
