"""What the kernel shows about a rank's process and threads, as far as the agent may read it.

State, memory and threads are public (proc(5)); the place in the kernel where a thread sleeps
(`wchan`, `stack`) and its system call require the right to trace it, which agents usually lack.
What may not be read is reported as such, without affecting anything else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rankscope_agent.contract.printable import printable
from rankscope_agent.contract.redaction import redacted
from rankscope_agent.sources.kernel_files import names_in, read_bytes, read_text
from rankscope_agent.sources.stalls.process import parse

MAX_STATUS_BYTES = 16 << 10
MAX_THREADS = 512
"""Threads listed per process; a rank with its libraries has some 100 to 300."""

KEPT_FIELDS = frozenset(
    (
        *(
            "State",
            "Threads",
            "VmPeak",
            "VmRSS",
            "RssShmem",
            "VmSwap",
            "SigPnd",
            "ShdPnd",
            "SigBlk",
        ),
        *("SigIgn", "SigCgt", "CapEff", "Seccomp", "Cpus_allowed_list", "Mems_allowed_list"),
        *("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "TracerPid", "NSpid"),
    )
)
"""Fields of /proc/PID/status that are relevant to a stalled process."""

ASLEEP = frozenset("SD")
"""States of threads that sleep in the kernel, which shows where to processes that may trace
them."""

ASKED_IN_VAIN = 3
"""After this many sleeping threads without a wait channel no more are read; one may have woken up
meanwhile."""

TRACED = ("wchan", "stack", "syscall")
"""Files of a process that require the right to trace it (PTRACE_MODE_READ_FSCREDS and above)."""

NO_PROCESS = (
    "no process visible to the agent holds the rank's ring: it has ended, or runs in another PID"
    " namespace than the agent, which needs hostPID"
)


def process_state(procfs: Path, pid: int | None) -> dict[str, Any]:
    """Return what is known about a process, and why the rest is not.

    Args:
        procfs: the node's procfs.
        pid: of the process, as numbered in that procfs; None if it is not visible.
    """
    if pid is None:
        return {"not_seen": NO_PROCESS}
    place = procfs / str(pid)
    status = read_text(place / "status", MAX_STATUS_BYTES)
    if not status:
        return {"pid": pid, "not_seen": "its process has ended, or may not be read"}
    known, refused = _traced(place)
    threads, more = _threads(place / "task")
    return {
        "pid": pid,
        "status": _fields(status),
        "cpu_seconds": parse(read_text(place / "stat")).cpu_seconds,
        **known,
        "threads": threads,
        "threads_left_out": more,
        "not_readable": refused,
    }


def _fields(status: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in status.splitlines())
    return {name: value.strip() for name, _, value in pairs if name in KEPT_FIELDS}


def _traced(place: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files that require the right to trace, and why unreadable ones are missing."""
    known, refused = {}, {}
    for name in TRACED:
        text, why = _read(place / name)
        if why:
            refused[name] = why
        else:
            known[name] = text
    if known.get("wchan") == "0":  # what the kernel also returns to readers without the right
        refused["wchan"] = (
            "the kernel shows no wait channel: it runs, or the agent may not trace it"
        )
        del known["wchan"]
    return known, refused


def _read(path: Path) -> tuple[str, str]:
    try:
        return read_bytes(path).decode("utf-8", "replace").strip(), ""
    except OSError as error:
        return "", os.strerror(error.errno or 0)


def _threads(tasks: Path) -> tuple[list[dict[str, str]], int]:
    """Return the threads of a process with their states, and the number of those left out.

    A rank has tens of them: paths are built as strings, which takes a third of the time that `Path`
    takes, and after a few sleeping threads without a wait channel no more wait channels are read.
    """
    names, more = names_in(tasks, MAX_THREADS)
    found, folder, untold = [], str(tasks), 0
    for name in names:
        stat = read_text(f"{folder}/{name}/stat")
        state = parse(stat).state
        if not state:
            continue
        comm = stat.partition("(")[2].rpartition(")")[0]
        thread = {"tid": name, "name": redacted(printable(comm)), "state": state}
        place = _wchan(f"{folder}/{name}/wchan") if untold < ASKED_IN_VAIN else ""
        if place:
            thread["wchan"] = place
        elif state in ASLEEP:
            untold += 1
        found.append(thread)
    return found, more


def _wchan(path: str) -> str:
    place = read_text(path, 128)
    return "" if place == "0" else place
