"""Pure parser of /proc/PID/mountstats: NFS mounts, by operation.

Format: rpc_print_iostats in the kernel's net/sunrpc/stats.c. Each operation has its count, number
of transmissions and timeouts, bytes sent and received, and milliseconds queued, on the wire, and in
total.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MILLISECONDS = 1e-3

KINDS: Mapping[str, str] = {"READ": "read", "WRITE": "write", "COMMIT": "write"}
"""Operations that move data; all others are `metadata`."""

MAX_MOUNTS = 4096

_DEVICE = re.compile(r"device (\S+) mounted on (\S+) with fstype (nfs4?)(?: statvers=\S+)?")
_OPERATION = re.compile(r"\s+([A-Z_0-9]{1,32}): ([0-9]{1,20}(?: [0-9]{1,20}){7,8})")
_POD = re.compile(r"/pods/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/")


@dataclass(frozen=True, slots=True)
class NfsTotals:
    """The totals of one kind of operation on a server."""

    operations: int
    retransmissions: int
    timeouts: int
    round_trip_seconds: float

    def __add__(self, other: NfsTotals) -> NfsTotals:
        return NfsTotals(
            self.operations + other.operations,
            self.retransmissions + other.retransmissions,
            self.timeouts + other.timeouts,
            self.round_trip_seconds + other.round_trip_seconds,
        )


Totals = Mapping[tuple[str, str], NfsTotals]


def parse_mountstats(text: str) -> Totals:
    """Return the totals by pod (empty for the node's own mounts) and kind of operation.

    Mounts of one export share their counters: each export counts once per pod.
    """
    sums: dict[tuple[str, str], NfsTotals] = {}
    seen: set[tuple[str, str]] = set()
    for pod, export, lines in _mounts(text):
        if (pod, export) in seen:
            continue
        seen.add((pod, export))
        for kind, totals in _operations(lines):
            before = sums.get((pod, kind))
            sums[pod, kind] = totals if before is None else before + totals
    return sums


def _mounts(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield pod, export and lines of each NFS mount."""
    parts = re.split(r"^(?=device )", text, flags=re.MULTILINE)
    for part in parts[: MAX_MOUNTS + 1]:
        lines = part.splitlines()
        match = _DEVICE.match(lines[0]) if lines else None
        if match:
            pod = _POD.search(match[2])
            yield pod[1] if pod else "", match[1], lines[1:]


def _operations(lines: list[str]) -> Iterator[tuple[str, NfsTotals]]:
    for line in lines:
        match = _OPERATION.fullmatch(line)
        if match:
            count, sent, timeouts, _, _, _, round_trip = map(int, match[2].split()[:7])
            again = max(0, sent - count)
            seconds = round_trip * MILLISECONDS
            yield KINDS.get(match[1], "metadata"), NfsTotals(count, again, timeouts, seconds)
