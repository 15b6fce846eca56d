"""How the previous boot ended, from pstore's dumps and from the shutdown recorded in wtmp."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Literal

Reason = Literal["clean", "crashed", "unexpected", "unknown"]
REASONS: tuple[Reason, ...] = ("clean", "crashed", "unexpected", "unknown")

RECORD_BYTES = 384  # struct utmp of <bits/utmp.h>, the same on 32 and 64 bits
TAIL_RECORDS = 512
"""Records that are read: some weeks of logins on a busy node, read once per boot."""

RUN_LEVEL = 1
SHUTDOWN = b"shutdown"
_TIME = struct.Struct("<i")
_TYPE = struct.Struct("<h")

DUMP = "dmesg-"
MAX_DUMPS = 1024


def ended(pstore: Path, wtmp: Path, since_unix_seconds: float) -> Reason:
    """Return how the boot ended that was last known to be running at a given time.

    A newer dump in pstore stems from a crash: the kernel writes it as it dies. Systemd writes a
    `shutdown` record to wtmp at an orderly shutdown; if that file is not readable, the end is
    unknown.
    """
    if _has_dump(pstore, since_unix_seconds):
        return "crashed"
    shutdown = last_shutdown(wtmp)
    if shutdown is None:
        return "unknown"
    return "clean" if shutdown >= since_unix_seconds - 1 else "unexpected"


def _has_dump(pstore: Path, since: float) -> bool:
    try:
        with os.scandir(pstore) as found:
            names = [entry for _, entry in zip(range(MAX_DUMPS), found, strict=False)]
        return any(
            entry.name.startswith(DUMP) and entry.stat(follow_symlinks=False).st_mtime >= since
            for entry in names
        )
    except OSError:
        return False


def last_shutdown(wtmp: Path) -> float | None:
    """Return the time of the last orderly shutdown; 0 if there was none, None if unknown."""
    try:
        descriptor = os.open(wtmp, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        records = os.fstat(descriptor).st_size // RECORD_BYTES
        first = max(0, records - TAIL_RECORDS)
        data = os.pread(descriptor, (records - first) * RECORD_BYTES, first * RECORD_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if not data:
        return None  # emptied by rotation, or never written: inconclusive
    last = 0.0
    for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        user = data[at + 44 : at + 76].split(b"\0", 1)[0]
        if _TYPE.unpack_from(data, at)[0] == RUN_LEVEL and user == SHUTDOWN:
            last = float(_TIME.unpack_from(data, at + 340)[0])
    return last
