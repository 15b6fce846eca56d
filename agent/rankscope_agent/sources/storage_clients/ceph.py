"""Pure parser of a CephFS client's counters, `ceph/FSID.clientID/metrics` in debugfs.

Format: metrics_latency_show and metrics_size_show in fs/ceph/debugfs.c: tables of items, each below
a heading that names its columns. Since Linux 5.16 each is a file in a directory `metrics`; before,
since 5.8, all are in one file of that name, without sums of bytes.
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
    """Return the totals of one mount.

    The time is the average, in whole microseconds, times the count.
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
    """Return the file system's id from the name of the mount's directory; None if there is none."""
    found = _DIRECTORY.fullmatch(directory)
    return found[1] if found else None
