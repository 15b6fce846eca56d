"""Files that newer probes keep next to a ring, under its name with another suffix: their header.

Their first slot identifies their ring; nothing after it is read before it has been checked.
"""

from __future__ import annotations

import os
import struct

from rankscope_agent.sources.training.files import OpenRing, open_regular, refuse
from rankscope_agent.sources.training.format import BYTE_ORDER_MARK, RingError, RingHeader

VERSION = 1
SLOT_SIZE = 64

_HEADER = struct.Struct("<8sHHIIqI32x")


def open_companion(
    directory_descriptor: int, ring: OpenRing, suffix: str, expected: bytes, slots: int
) -> int | None:
    """Open a file next to a ring; return its descriptor, None if there is no such file.

    Args:
        directory_descriptor: of the directory of both.
        ring: the ring.
        suffix: the file's suffix, in place of the ring's.
        expected: its magic word.
        slots: the number of slots after the first one.

    Raises:
        RingError: it cannot be opened, or is not such a file of this ring.
    """
    name = ring.name.removesuffix(".ring") + suffix
    try:
        descriptor = open_regular(directory_descriptor, name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refuse(error, ring.directory.path / name) from error
    try:
        page = os.pread(descriptor, _HEADER.size, 0)
        check_companion(page, os.fstat(descriptor).st_size, ring.header, expected, slots)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError):
            raise refuse(error, ring.directory.path / name) from error
        raise
    return descriptor


def check_companion(page: bytes, size: int, ring: RingHeader, expected: bytes, slots: int) -> None:
    """Compare the first slot and the size of a file with the ring that it belongs to.

    Args:
        page: the beginning of the file.
        size: its size in bytes.
        ring: the expected ring.
        expected: its magic word.
        slots: the number of slots after the first one.

    Raises:
        RingError: it has another version, belongs to another ring or is another kind of file.
    """
    if len(page) < _HEADER.size:
        raise RingError("too_small", f"{len(page)} bytes, its first slot has {_HEADER.size}")
    magic, version, slot_size, mark, capacity, created_unix_ns, pid = _HEADER.unpack(page)
    if magic != expected:
        raise RingError("magic", f"begins with {magic!r}, not with {expected!r}")
    if mark != BYTE_ORDER_MARK:
        raise RingError("byte_order", f"byte order mark {mark:#010x}, not {BYTE_ORDER_MARK:#010x}")
    if version != VERSION:
        raise RingError("version", f"version {version}, this agent reads {VERSION}")
    if (slot_size, capacity, size) != (SLOT_SIZE, slots, SLOT_SIZE * (1 + slots)):
        seen = f"{capacity} slots of {slot_size} bytes in {size} bytes"
        raise RingError("geometry", f"{seen}, expected {slots}")
    if (created_unix_ns, pid) != (ring.created_unix_ns, ring.pid):
        raise RingError("identity", f"of pid {pid} at {created_unix_ns}, not of {ring.pid}")
