"""A rank that joins others where a limit leaves room for two threads, or any; usage: serving.py
full | roomy."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

ROOM = 16 << 20
"""Bytes that the process may still map: two stacks of the usual 8 MiB."""


def ignored() -> str:
    """Give the signals that the kernel ignores for this process."""
    return Path("/proc/self/status").read_text().split("SigIgn:")[1].split()[0]


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    before = ignored()
    if sys.argv[1] == "full":
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + ROOM, resource.RLIM_INFINITY))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    time.sleep(0.3)  # in which a server without its threads ends the process
    served = any(Path(os.environ["RANKSCOPE_RING_DIR"]).glob("*.sock"))
    print("trains", float(torch.ones(2).sum()), served, ignored() == before)
