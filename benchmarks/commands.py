"""Runs commands of this project for benchmarks, and measures their cost as whole processes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MEMORY_OF = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
sys.stderr.write(str(usage.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Runs a command and writes its peak memory in KiB. The kernel includes what a process used before
exec, so that this small program has to start it, not the benchmark."""


def cpu_of(command: Sequence[str]) -> float:
    """Return the CPU seconds, user and system, of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with Path(os.devnull).open("wb") as sink:
        subprocess.run(command, stdout=sink, stderr=sink, env=environment(), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def environment() -> dict[str, str]:
    """Return the environment in which this tree is run.

    Its modules are compiled once, like those of an installed package, whatever the caller's
    environment: compiling them at each start takes longer than some commands.
    """
    root = Path(__file__).parent.parent
    inherited = {n: value for n, value in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {"PYTHONPATH": f"{root / 'agent'}:{root / 'analyzers'}"}


def peak_memory_mib(command: Sequence[str]) -> float:
    """Return a command's peak resident memory, as wait4(2) reports it."""
    starter = [sys.executable, "-I", "-S", "-c", MEMORY_OF, *command]
    done = subprocess.run(starter, capture_output=True, env=environment(), check=True, text=True)
    return int(done.stderr) / 1024
