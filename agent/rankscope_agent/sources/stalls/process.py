"""The state of a process and the processor time that it has used, from procfs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.sources.kernel_files import read_text

STATE, USER_TICKS, SYSTEM_TICKS = 0, 11, 12
"""Places in /proc/PID/stat behind the name (proc(5): fields 3, 14 and 15)."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """Of a process: its state's letter, empty where it is not seen, and its processor time."""

    state: str = ""
    cpu_seconds: float | None = None


def process_state(procfs: Path, pid: int | None) -> ProcessState:
    """Return the state of a process, nothing known without a number."""
    return ProcessState() if pid is None else parse(read_text(procfs / str(pid) / "stat"))


def parse(stat: str) -> ProcessState:
    """Read /proc/PID/stat; names may hold spaces and brackets."""
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= SYSTEM_TICKS or not (fields[USER_TICKS] + fields[SYSTEM_TICKS]).isdigit():
        return ProcessState()
    ticks = int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])
    return ProcessState(fields[STATE], ticks / os.sysconf("SC_CLK_TCK"))
