"""Pure parser of what a CephFS client counts, `ceph/FSID.clientID/metrics` in debugfs.

Format: metrics_latency_show and metrics_size_show in fs/ceph/debugfs.c: tables of items, below
heads that say what their columns are. Since Linux 5.16 each is a file of a directory `metrics`;
before, since 5.8, all stand in one file of that name, without sums of bytes.
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

KINDS = {"read": READ, "write": WRITE, "metadata": METADATA}

_HEAD = re.compile(r"item +total +avg_(lat|sz)\((?:us|bytes)\)(.{0,100})")
_ITEM = re.compile(r"(\w{1,16}) +(\d{1,20}) +(\d{1,20})(?: +(\d{1,20}) +(\d{1,20}) +(\d{1,20}))?")
_DIRECTORY = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.client\d{1,20}")


def parse_metrics(text: str) -> ClientTotals:
    """Return what the client did through one mount.

    The time is that of the average, in whole microseconds, times the count.
    """
    totals = ClientTotals()
    table, has_sums = "", False
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            table, has_sums = head[1], "total_sz" in head[2]
            continue
        found = _ITEM.match(line)
        if found is None or found[1] not in KINDS:
            continue
        kind, count, mean = KINDS[found[1]], int(found[2]), int(found[3])
        if table == "lat" and count * mean < MAX_NUMBER:
            totals.add(kind, count, count * mean)
        elif table == "sz" and has_sums and found[6] and int(found[6]) < MAX_NUMBER:
            totals.add_bytes(kind, int(found[6]))
    return totals


def filesystem(directory: str) -> str | None:
    """Return the file system's id from the name of the mount's directory, None if it is none."""
    found = _DIRECTORY.fullmatch(directory)
    return found[1] if found else None
