"""Memory cgroups for tests, of either version: a command that runs under a limit, as in a pod."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rendered_manifests import ROOT as MANIFESTS

ROOT = Path("/sys/fs/cgroup")
LIMITS = {"memory": "memory.limit_in_bytes", ".": "memory.max"}
"""By the folder under which groups are made: version 1, version 2."""

UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

EMPTY_SECONDS = 10.0


def limit_of_the_pod() -> int:
    """Return the memory in bytes that the DaemonSet gives its agent."""
    document = yaml.safe_load((MANIFESTS / "base" / "daemonset.yaml").read_text())
    (container,) = document["spec"]["template"]["spec"]["containers"]
    text = container["resources"]["limits"]["memory"]
    return int(text[:-2]) * UNITS[text[-2:]]


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A group, with the file that counts the processes ended for want of memory."""

    folder: Path

    def command(self, *words: str) -> Sequence[str]:
        """Return how to start a command so that it and its memory belong to the group."""
        enter = f'echo $$ > {self.folder}/cgroup.procs && exec "$@"'
        return ("sh", "-c", enter, "sh", *words)

    def kills(self) -> int:
        """Return how many processes were ended for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(FileNotFoundError):
                lines = (self.folder / name).read_text().splitlines()
                return int(dict(line.split() for line in lines)["oom_kill"])
        raise AssertionError(f"{self.folder} counts no kills")


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """Make a group until the block ends; skip the test where none can be made."""
    folder = made(limit_bytes)
    if folder is None:
        pytest.skip(f"no memory cgroup can be made under {ROOT}")
    try:
        yield MemoryGroup(folder)
    finally:
        until = time.monotonic() + EMPTY_SECONDS
        while True:
            try:
                folder.rmdir()
                break
            except OSError:  # the kernel takes a moment to forget ended processes
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)


def made(limit_bytes: int) -> Path | None:
    for parent, limit in LIMITS.items():
        folder = ROOT / parent / f"rankscope-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(limit_bytes))
        except OSError:  # a group without this controller
            folder.rmdir()
            continue
        return folder
    return None
