"""Join others by functions of torch's; usage: joining.py mesh | checkpoints.

It prints how many rings this process has then.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist


def rings() -> int:
    return len(list(Path(os.environ["RANKSCOPE_RING_DIR"]).glob(f"{os.getpid()}-*.ring")))


def mesh() -> None:
    """Join as programs do that only say how ranks are arranged."""
    from torch.distributed.device_mesh import init_device_mesh

    init_device_mesh("cpu", (2,))
    print(rings(), flush=True)
    dist.barrier()


def checkpoints() -> None:
    """Be the process that torch starts for `async_save`, until it is told to end."""
    from torch.distributed.checkpoint import _async_process_executor as module

    class Trainer:
        def send(self, said: object) -> None:
            if isinstance(said, BaseException):
                raise said

        def recv(self) -> Any:
            print(rings(), flush=True)
            return module._CheckpointSaveProcessControlOpts.TERMINATE

        def close(self) -> None:
            pass

    about = SimpleNamespace(
        global_rank=int(os.environ["RANK"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        tcp_store_master_addr=os.environ["MASTER_ADDR"],
        tcp_store_master_port=int(os.environ["MASTER_PORT"]),
        use_prefix_store=False,
        disable_automatic_gc=False,
    )
    module._AsyncCheckpointProcess._checkpointing_subprocess(about, Trainer())  # type: ignore[arg-type]


if __name__ == "__main__":
    {"mesh": mesh, "checkpoints": checkpoints}[sys.argv[1]]()
