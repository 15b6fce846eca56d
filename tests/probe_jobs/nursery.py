"""Import torch once, then fork a child for every training process that a test asks for.

usage: nursery.py; orders are lines of JSON on standard input, answers on standard output:

`{"command": [...], "environment": {...}, "out": FILE, "err": FILE, "finalized": true}` starts a
script as `__main__` and is answered with its process id. It ends as any interpreter does, or else
after its exit handlers: to take down what torch has made costs as much as many a job itself.
`{"ended": [PID...], "wait": true}` is answered with exit codes, null of those that run.
`{"offspring": [MODULE...], "environment": {...}, "orders": FIFO, "answers": FIFO}` forks a nursery
that imports more and reads its orders there. Where its environment does not keep torch from it, it
loads what extends torch, the probe among it, as the end of `import torch` does.

Importing torch takes seconds of a core, a fork milliseconds.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from ending import end_in_time

MODULES = (
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.profiler",
)
POLL_SECONDS = 0.01


class Children:
    """The processes that a nursery forked, and the exit codes of those that have ended."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.codes: dict[int, int] = {}

    def reap(self, *_: object) -> None:
        """Note who has ended, at once: an agent would see a process that nobody waited for."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self.codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])

    def ended(self, pids: list[int], wait: bool) -> list[int | None]:
        while wait and not set(pids) <= set(self.codes):
            time.sleep(POLL_SECONDS)
        return [self.codes.get(pid) for pid in pids]

    def kill(self) -> None:
        """End those that run: nobody is left who asks for them."""
        for pid in self.running - set(self.codes):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def put(environment: Mapping[str, str | None]) -> None:
    """Set environment variables, and take away those that are None."""
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def become(order: Mapping[str, Any]) -> None:
    """Turn this child into one training process."""
    for descriptor, path in ((1, order["out"]), (2, order["err"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), descriptor)
    end_in_time()
    put(order["environment"])
    tempfile.tempdir = None  # that of its own environment
    sys.argv = order["command"]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
    if not order["finalized"]:
        atexit._run_exitfuncs()
        leave()


def grow(order: Mapping[str, Any]) -> NoReturn:
    """Turn this child into a nursery of its own."""
    for descriptor, (name, flags) in enumerate((("orders", os.O_RDONLY), ("answers", os.O_WRONLY))):
        opened = os.open(order[name], flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    put(order["environment"])
    if torch._is_device_backend_autoload_enabled():
        torch._import_device_backends()
    for name in order["offspring"]:
        importlib.import_module(name)
    gc.freeze()
    serve()


def serve() -> NoReturn:
    """Serve orders until there are no more."""
    children = Children()
    signal.signal(signal.SIGCHLD, children.reap)
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        if "ended" in order:
            print(json.dumps(children.ended(order["ended"], order["wait"])), flush=True)
            continue
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        child = os.fork()
        children.codes.pop(child, None)  # of an earlier process that had the same id
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        if child == 0:
            (grow if "offspring" in order else become)(order)
            sys.exit()
        if "offspring" not in order:
            children.running.add(child)
        print(child, flush=True)
    children.kill()
    leave()


def leave() -> NoReturn:
    """End this process as it is."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    """Import what costs seconds, and serve."""
    for name in MODULES:
        importlib.import_module(name)
    torch.optim.SGD([torch.zeros(1)])  # imports what the first optimizer of a process imports
    gc.freeze()  # or each child ends by collecting 290,000 objects, which takes it a second
    serve()


if __name__ == "__main__":
    main()
