"""Starts and stops real agents, each over a directory of rings."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.commands import environment

START_SECONDS = 180.0
"""Seconds on a busy machine; on an idle one an agent takes two."""

_LISTENING = re.compile(r"listening on (http://\S+)")


@contextlib.contextmanager
def agents_over(folders: Sequence[Path], *flags: str) -> Iterator[list[str]]:
    """Run an agent on the directory `rings` in each of some directories; yield their addresses.

    Args:
        folders: the name of each is the name of the agent's node.
        flags: further flags of every agent.
    """
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(_agent(folder, flags)) for folder in folders]
        yield [_address(process, folder) for process, folder in zip(started, folders, strict=True)]


@contextlib.contextmanager
def _agent(folder: Path, flags: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    own = [f"--node-name={folder.name}", f"--path.ring-dir={folder}/rings"]
    own += [f"--path.state={folder}", f"--path.kubelet={folder}/none"]
    own += [f"--path.pod-logs={folder}/none", "--web.listen-address=127.0.0.1:0"]
    own += [f"--path.kmsg={empty_kernel_log(folder)}"]
    with (folder / "agent.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "rankscope_agent", *own, *flags], stderr=log, env=environment()
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def empty_kernel_log(folder: Path) -> Path:
    """Make a kernel log without a line: what this machine's says is about other programs."""
    path = folder / "kmsg"
    path.touch()
    return path


def _address(process: subprocess.Popen[bytes], folder: Path) -> str:
    log, deadline = folder / "agent.log", time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := _LISTENING.search(log.read_text()):
            return found[1]
        time.sleep(0.02)
    raise RuntimeError(f"an agent does not listen: {log.read_text()}")
