"""CPU wait times of a process's threads, from procfs.

Its files are readable by everyone who sees the process, without the right to trace it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rankscope_agent.sources.kernel_files import names_in, read_text

MAX_THREADS = 512
"""Threads of a process that are read; trainers have one to three hundred."""

WATCHED_THREADS = 16
"""Threads of a process that are followed: the busiest. A thread that hardly needs a CPU cannot
delay its process by waiting for one."""


def parse_schedstat(text: str) -> tuple[int, int] | None:
    """Read a schedstat file: nanoseconds on a CPU and nanoseconds runnable without one.

    The kernel writes zeros if it does not count (fs/proc/base.c, proc_pid_schedstat); the times are
    then unknown.
    """
    fields = text.split()
    if len(fields) != 3 or not all(field.isascii() and field.isdigit() for field in fields):
        return None
    ran, waited = int(fields[0]), int(fields[1])
    return (ran, waited) if ran or waited else None


def parse_parent(stat: str) -> int | None:
    """Read the parent's PID from /proc/PID/stat; names may contain spaces and brackets."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None


def parse_state(stat: str) -> str:
    """Read the state of a process from /proc/PID/stat; empty if it is missing.

    T means stopped by a signal, t by a debugger (fs/proc/array.c, task_state_array).
    """
    fields = stat.rpartition(")")[2].split()
    return fields[0] if fields else ""


class Waits:
    """The CPU wait of the worst of some threads, added up over readings."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._seen: dict[Path, int] = {}
        self._looked = 0.0

    def look(self, threads: Mapping[Path, tuple[int, int]], now: float) -> None:
        """Add the longest wait of one thread since the last reading, at most the time in between.

        Args:
            threads: by thread, the result of `parse_schedstat`.
            now: monotonic seconds.
        """
        grown = [
            waited - self._seen[thread]
            for thread, (_, waited) in threads.items()
            if thread in self._seen
        ]
        if threads:
            longest = min(max(grown, default=0) / 1e9, now - self._looked)
            self.seconds = (self.seconds or 0.0) + max(longest, 0.0)
        self._seen = {thread: waited for thread, (_, waited) in threads.items()}
        self._looked = now


def busiest_threads(process: Path) -> list[Path]:
    """Return the schedstat files of the threads that have wanted most CPU time so far.

    The main thread's is always among them, because it runs the training loop.
    """
    names, _ = names_in(process / "task", MAX_THREADS)
    files = [process / "task" / name / "schedstat" for name in names]
    wanted = {file: sum(known) for file in files if (known := read_schedstat(file))}
    first = process / "task" / process.name / "schedstat"
    rest = sorted((file for file in wanted if file != first), key=lambda file: -wanted[file])
    return [first, *rest[: WATCHED_THREADS - 1]] if first in wanted else rest[:WATCHED_THREADS]


def read_schedstat(file: Path) -> tuple[int, int] | None:
    """Return the contents of a schedstat file; None if it is gone or empty."""
    return parse_schedstat(read_text(file, 128))
