"""Two ranks of which the second comes late, and both take their time for the first step.

usage: starting.py; what each did when goes to standard output as JSON, in Unix seconds.
"""

from __future__ import annotations

import json
import os
import time

import torch
import torch.distributed as dist
from starting_times import FIRST_STEP_SECONDS, LATE_SECONDS

STEPS = 4


def main() -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if os.environ["RANK"] == "1":
        time.sleep(LATE_SECONDS)
    joining = time.time()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", os.environ["MEETING"], rank=rank, world_size=size)
    joined, ended = time.time(), []
    time.sleep(FIRST_STEP_SECONDS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        ended.append(time.time())
    dist.destroy_process_group()
    print(json.dumps({"joining": joining, "joined": joined, "first_step": ended[0]}))


if __name__ == "__main__":
    main()
