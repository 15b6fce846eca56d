"""A training script that comes to a stand: FAULT=<what>:<rank> after 60 steps, on 3 or more ranks.

never: the rank does not enter the next backward. loader: its input never comes. disk: it sleeps in
its own code after the backward. operation, pair: it calls another collective, size: one of another
size. groups: two ranks enter the collectives of two groups in different orders, the given one and
the next. message: the rank waits for a message that nobody sends. first: as never, before any step.
killed, stopped: a signal ends or holds it. raises: its program raises. again: it does not come to
init_process_group of a second attempt.

A step takes at least PACE seconds.

Pauses of PAUSE seconds that are none: slow-first, checkpoint: the rank takes long for its first
step, or to save. work: it computes something that no probe marks. evaluation, exchange: all ranks
evaluate, or exchange something else.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WHAT, _, CHOSEN = (os.environ.get("FAULT") or "nothing:-1").partition(":")
CHOSEN = int(CHOSEN)
HANGS_AT = int(os.environ.get("HANGS_AT", "60"))
HERE = int(os.environ["RANK"])
SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


PAUSE = float(os.environ.get("PAUSE", "25"))


class Slow:
    """Takes long to be saved."""

    def __reduce__(self):
        time.sleep(PAUSE)
        return Slow, ()


def pause():
    """Do for a while what is no step."""
    if WHAT in ("slow-first", "checkpoint", "work") and HERE != CHOSEN:
        return
    if WHAT == "work":
        until = time.monotonic() + PAUSE
        while time.monotonic() < until:
            torch.ones(200, 200).matmul(torch.ones(200, 200))
    if WHAT == "slow-first":
        time.sleep(PAUSE)
    if WHAT == "checkpoint":
        torch.save(Slow(), os.devnull)
    if WHAT == "evaluation":
        with torch.no_grad():
            for _, _ in zip(DataLoader(Batches()), range(round(PAUSE)), strict=False):
                time.sleep(1.0)
    if WHAT == "exchange":
        for _ in range(round(PAUSE)):
            dist.all_reduce(torch.ones(4))
            time.sleep(1.0)


def stand_still():
    print(f"rank {HERE} stands still", file=sys.stderr, flush=True)
    time.sleep(1000)


class Batches(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, number):
        if WHAT == "loader" and number == HANGS_AT and HERE == CHOSEN:
            stand_still()
        return torch.ones(8)


def go_wrong(size, groups):
    value = torch.ones(4)
    if WHAT in ("never", "first") and HERE == CHOSEN:
        stand_still()
    if WHAT in SIGNALS and HERE == CHOSEN:
        os.kill(os.getpid(), SIGNALS[WHAT])
    if WHAT == "raises" and HERE == CHOSEN:
        raise RuntimeError("this attempt ends here")
    if WHAT in ("operation", "pair"):
        # Whoever sends does not wait: of two ranks it would go on.
        source = CHOSEN if size > 2 else 1 - CHOSEN
        dist.broadcast(value, source) if HERE == CHOSEN else dist.all_reduce(value)
    if WHAT == "size":
        dist.all_reduce(torch.ones(400) if HERE == CHOSEN else value)
    if WHAT == "groups" and HERE in (CHOSEN, (CHOSEN + 1) % size):
        for group in groups if HERE == CHOSEN else reversed(groups):
            dist.all_reduce(value, group=group)
    if WHAT == "message" and HERE == CHOSEN:
        dist.recv(value, (CHOSEN + 1) % size)


def main():
    signal.alarm(300)  # ends the job also when the test that started it is gone
    if WHAT == "again" and HERE == CHOSEN and os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
        stand_still()
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    pair = sorted((CHOSEN % size, (CHOSEN + 1) % size))
    groups = [dist.new_group(pair), dist.new_group(pair)]
    for group in groups:
        if HERE in pair:
            dist.all_reduce(torch.ones(4), group=group)
    if WHAT == "first":
        go_wrong(size, groups)
    if WHAT == "slow-first":
        pause()
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(DataLoader(Batches())):
        if number == int(os.environ.get("STEPS", "100000")):
            break
        if number == HANGS_AT:
            go_wrong(size, groups)
            if WHAT != "slow-first":
                pause()
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(float(os.environ.get("PACE", "0.01")))
    time.sleep(0.2)  # gloo drops Python objects of finished collectives for a moment
    dist.destroy_process_group()


main()
