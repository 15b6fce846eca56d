"""Pure parser of a Lustre client's statistics, `lustre/llite/FSNAME-ID/stats` in debugfs.

Format: lprocfs_stats_seq_show in lustre/obdclass/lprocfs_status.c:
`NAME COUNT samples [UNIT] MIN MAX SUM SUMSQUARE`, where the unit is `bytes`, `usecs` (llite's own
operations, since 2.13) or `reqs`/`regs` (before; without sums).
"""

from __future__ import annotations

import re

from rankscope_agent.sources.storage_clients.totals import (
    MAX_NUMBER,
    METADATA,
    READ,
    WRITE,
    ClientTotals,
)

KINDS = {
    "read": READ,
    "write": WRITE,
    "fsync": WRITE,
    **dict.fromkeys(
        (
            *("open", "close", "mknod", "create", "link", "unlink", "symlink", "mkdir", "rmdir"),
            *("rename", "truncate", "setattr", "getattr", "statfs", "readdir", "flock"),
            *("setxattr", "getxattr", "listxattr", "removexattr"),
        ),
        METADATA,
    ),
}
"""Operations by kind. Others do not wait for a server (`seek`, `inode_permission`, cached
attributes), or are part of these (`mmap`, page faults)."""

BYTES = {"read_bytes": READ, "write_bytes": WRITE}

_LINE = re.compile(
    r"(\w{1,32}) +(\d{1,20}) samples \[(\w{1,8})\](?: +(\d{1,20}) +(\d{1,20}) +(\d{1,20}))?"
)


def parse_stats(text: str) -> ClientTotals:
    """Return the totals of one mount."""
    totals = ClientTotals()
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        name, count, unit, total = found[1], int(found[2]), found[3], found[6]
        if max(count, int(total or 0)) >= MAX_NUMBER:
            continue
        if name in BYTES and unit == "bytes":
            totals.add_bytes(BYTES[name], int(total or 0))
        elif name in KINDS:
            totals.add(KINDS[name], count, int(total) if unit == "usecs" and total else None)
    return totals


def filesystem(directory: str) -> str | None:
    """Return the file system's name from that of the mount's directory; None if there is none.

    Names have up to eight characters (lustre_disk.h), followed by the mount's address.
    """
    found = re.fullmatch(r"([A-Za-z0-9_-]{1,8})-[0-9a-f]{8,16}", directory)
    return found[1] if found else None
