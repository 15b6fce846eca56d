"""Pure parsers of the kernel's tables about a node; malformed lines are skipped."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

KIBIBYTE = 1024
MICROSECONDS = 1e-6
MAX_COUNTER = 2**64 - 1

_PRESSURE = re.compile(r"(some|full) avg10=\S+ avg60=\S+ avg300=\S+ total=([0-9]{1,20})")
_MEMINFO = re.compile(r"(\w+):\s+([0-9]{1,20}) kB")
_IO = re.compile(r"(rbytes|wbytes|rios|wios)=([0-9]{1,20})")
_MEMLOCK = re.compile(r"Max locked memory\s+(unlimited|[0-9]{1,20})\s")
_SIZE = re.compile(r"(?:^|,)size=([0-9]{1,20})k(?:,|$)")
_LOADAVG = re.compile(r"\S+ \S+ \S+ [0-9]+/([0-9]{1,10}) ")
_SOFTNET_COLUMNS = 3  # processed, dropped, time_squeeze: softnet_seq_show in net-procfs.c


def parse_pressure(text: str) -> Mapping[str, float]:
    """Read a pressure file: seconds waited, by kind (some, full)."""
    found = (_PRESSURE.fullmatch(line.strip()) for line in text.splitlines())
    return {match[1]: int(match[2]) * MICROSECONDS for match in found if match}


def parse_flat(text: str) -> Mapping[str, int]:
    """Read lines of a name and a number: vmstat, cpu.stat, memory.events."""
    found = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.isascii() and number.isdigit() and int(number) <= MAX_COUNTER:
            found[name] = int(number)
    return found


def parse_meminfo(text: str) -> Mapping[str, int]:
    """Read /proc/meminfo in bytes."""
    return {match[1]: int(match[2]) * KIBIBYTE for match in _MEMINFO.finditer(text)}


def parse_softnet(text: str) -> tuple[int, int] | None:
    """Return packets dropped and times squeezed, summed over CPUs; None without a CPU."""
    dropped, squeezed, cpus = 0, 0, 0
    for line in text.splitlines():
        columns = line.split()
        try:
            numbers = [int(column, 16) for column in columns[:_SOFTNET_COLUMNS]]
        except ValueError:
            continue
        if len(numbers) == _SOFTNET_COLUMNS and min(numbers) >= 0:
            dropped, squeezed, cpus = dropped + numbers[1], squeezed + numbers[2], cpus + 1
    return (dropped, squeezed) if cpus else None


def parse_io(text: str) -> Mapping[str, int]:
    """Read io.stat of a cgroup, summed over devices: rbytes, wbytes, rios, wios."""
    sums: dict[str, int] = {}
    for name, number in _IO.findall(text):
        sums[name] = sums.get(name, 0) + int(number)
    return sums


def parse_memlock(text: str) -> float | None:
    """Return the soft limit of locked memory in /proc/PID/limits, in bytes."""
    match = _MEMLOCK.search(text)
    if match is None:
        return None
    return math.inf if match[1] == "unlimited" else int(match[1])


def parse_tasks(text: str) -> int | None:
    """Return the number of tasks in /proc/loadavg."""
    match = _LOADAVG.match(text)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount in /proc/PID/mountinfo.

    Args:
        device: number of its file system, `0:25`.
        size_bytes: the maximum size of a tmpfs; None if it is not limited in bytes.
    """

    kind: str
    device: str
    size_bytes: int | None


def find_mount(mountinfo: str, point: str) -> Mount | None:
    """Return what is mounted at a path; of several mounts the last one hides the others."""
    found = None
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        columns, kinds = before.split(" "), after.split(" ")
        if separator and len(columns) > 5 and columns[4] == point and len(kinds) > 2:
            size = _SIZE.search(kinds[2])
            found = Mount(kinds[0], columns[2], int(size[1]) * KIBIBYTE if size else None)
    return found
