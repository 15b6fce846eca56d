"""Import torch once, then fork a process for every requested rank.

Importing takes seconds of CPU, a fork milliseconds. Orders are lines of JSON: `script`,
`arguments`, `environment`, `output` (a file), `processes` (a file that the process adds itself to:
a cgroup's) and `network` (a network namespace to enter). The answer is the process id. `{"ended":
PID}` is answered with the exit code of such a process, null while it runs. `{"probe": true}` loads
the probe, if the environment kept it from being loaded; it is answered with true.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch

CLONE_NEWNET = 0x40000000
LIFETIME_SECONDS = 300
MODULES = ("torch.distributed.fsdp", "torch.distributed.tensor.parallel", "torch.profiler")


def become(order: dict[str, Any]) -> None:
    """Turn this child into a rank."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.alarm(LIFETIME_SECONDS)  # even if nobody is left to end it
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if order["processes"]:
        Path(order["processes"]).write_text(str(os.getpid()))
    if order["network"]:
        enter(order["network"])
    os.environ.update(order["environment"])
    sys.argv = [order["script"], *order["arguments"]]
    sys.path.insert(0, str(Path(order["script"]).parent))
    runpy.run_path(order["script"], run_name="__main__")
    leave()


def leave() -> NoReturn:
    """End after the exit handlers: taking down what torch has made costs more than a short job."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def enter(namespace: str) -> None:
    """Enter a network namespace."""
    descriptor = os.open(namespace, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns", namespace)
    os.close(descriptor)


def reap(codes: dict[int, int]) -> None:
    """Record the exit codes of the ranks that have ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            codes[pid] = os.waitstatus_to_exitcode(status)


def main() -> None:
    """Serve orders until there are no more."""
    for name in MODULES:
        importlib.import_module(name)
    torch.optim.AdamW([torch.zeros(1)])  # imports what the first optimizer of a process imports
    gc.freeze()  # or each rank ends by collecting 290,000 objects, which takes it a second
    codes: dict[int, int] = {}
    signal.signal(signal.SIGCHLD, lambda *_: reap(codes))  # at once: an ended rank is no process
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        if "ended" in order:
            reap(codes)
            print(json.dumps(codes.get(order["ended"])), flush=True)
            continue
        if "probe" in order:
            torch._import_device_backends()
            gc.freeze()
            print(json.dumps(True), flush=True)
            continue
        child = os.fork()
        codes.pop(child, None)  # of an earlier process that had the same id
        if child == 0:
            become(order)
        print(child, flush=True)


if __name__ == "__main__":
    main()
