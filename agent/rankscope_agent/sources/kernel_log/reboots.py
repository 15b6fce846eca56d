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
"""Records looked at: some weeks of logins on a busy node, read at each boot once."""

RUN_LEVEL = 1
SHUTDOWN = b"shutdown"
_TIME = struct.Struct("<i")
_TYPE = struct.Struct("<h")

DUMP = "dmesg-"
MAX_DUMPS = 1024


def ended(pstore: Path, wtmp: Path, since_unix_seconds: float) -> Reason:
    """Return how the boot ended that was last seen alive at a time.

    A dump in pstore that is newer than that is of a crash: the kernel writes it as it dies. Systemd
    writes a `shutdown` record to wtmp when the node goes down in order; where that file is not
    readable, nothing can be told.
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
    """Return when the node last went down in order; 0 if never, None if that is not to be known."""
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
        return None  # emptied by rotation, or never written: it says nothing
    last = 0.0
    for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        user = data[at + 44 : at + 76].split(b"\0", 1)[0]
        if _TYPE.unpack_from(data, at)[0] == RUN_LEVEL and user == SHUTDOWN:
            last = float(_TIME.unpack_from(data, at + 340)[0])
    return last
