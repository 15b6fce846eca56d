"""Import torch once, then fork a child for every training process that a test asks for.

usage: nursery.py [MODULE...], which are imported as well.

Importing torch takes seconds, a fork milliseconds. A child sets its environment and runs the script
as `__main__`; it ends as any interpreter does. The probe sees a forked process that trains.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from ending import end_in_time
from running import free_port

torch.optim.SGD([torch.zeros(1)])  # imports what the first optimizer of a process imports


def become(order: dict[str, Any], rank: int) -> None:
    """Turn this child into one training process."""
    folder = Path(order["folder"])
    for descriptor, suffix in ((1, "out"), (2, "err")):
        path = folder / f"{rank}.{suffix}"
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), descriptor)
    end_in_time()
    os.environ.update(order["environment"])
    if order["ranks"] > 1:
        world = str(order["ranks"])
        os.environ.update(RANK=str(rank), WORLD_SIZE=world, LOCAL_RANK=str(rank))
        os.environ["MEETING"] = f"file://{folder}/meeting"
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(order["port"]))
    sys.argv = order["command"]
    runpy.run_path(order["command"][0], run_name="__main__")


def main() -> None:
    """Serve orders, one JSON object per line, with the list of exit codes."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # or each child ends by collecting 290,000 objects, which takes it a second
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        order["port"] = free_port()
        children = []
        for rank in range(order["ranks"]):
            child = os.fork()
            if child == 0:
                become(order, rank)
                sys.exit()
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    main()
