"""The state of a process and the processor time that it has used, from procfs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rankscope_agent.sources.kernel_files import names_in, read_text
from rankscope_agent.sources.starvation.schedule import MAX_THREADS, read_schedstat

STATE, USER_TICKS, SYSTEM_TICKS = 0, 11, 12
"""Indices in /proc/PID/stat after the name (proc(5): fields 3, 14 and 15)."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A process: the letter of its state, empty if not visible, and its processor time.

    `wanted_seconds` is by thread: running, or runnable without a CPU.
    """

    state: str = ""
    cpu_seconds: float | None = None
    wanted_seconds: Mapping[str, float] = field(default_factory=dict)


def process_state(procfs: Path, pid: int | None) -> ProcessState:
    """Return the state of a process; nothing is known without a PID."""
    if pid is None:
        return ProcessState()
    place = procfs / str(pid)
    known = parse(read_text(place / "stat"))
    wanted = {}
    threads, _ = names_in(place / "task", MAX_THREADS)
    for thread in threads:
        if times := read_schedstat(place / "task" / thread / "schedstat"):
            wanted[thread] = sum(times) / 1e9
    return replace(known, wanted_seconds=wanted)


def wanted_share(before: ProcessState, after: ProcessState, seconds: float) -> float | None:
    """Return the share of a core that a process used or wanted between two readings.

    A program that computes is always runnable, even if others leave it little CPU time; one that
    waits wants none. None if this is not counted.
    """
    if before.cpu_seconds is None or after.cpu_seconds is None:
        return None
    threads = before.wanted_seconds.keys() & after.wanted_seconds.keys()
    wanted = [after.wanted_seconds[one] - before.wanted_seconds[one] for one in threads]
    return max(0.0, after.cpu_seconds - before.cpu_seconds, *wanted) / seconds


def parse(stat: str) -> ProcessState:
    """Read /proc/PID/stat; names may contain spaces and brackets."""
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= SYSTEM_TICKS or not (fields[USER_TICKS] + fields[SYSTEM_TICKS]).isdigit():
        return ProcessState()
    ticks = int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])
    return ProcessState(fields[STATE], ticks / os.sysconf("SC_CLK_TCK"))
