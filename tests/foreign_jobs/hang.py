"""A small training script that hangs: FAULT=<where>:<rank> after 60 steps.

collective: the rank never enters the next backward; loader: its input never comes.
"""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WHERE, _, RANK = (os.environ.get("FAULT") or "nowhere:-1").partition(":")
HANGS_AT = 60


def hang(where, number):
    if where == WHERE and number == HANGS_AT and os.environ["RANK"] == RANK:
        time.sleep(1000)


class Batches(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, number):
        hang("loader", number)
        return torch.ones(8)


def main():
    signal.alarm(300)  # ends the job also when the test that started it is gone
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(DataLoader(Batches())):
        if number == int(os.environ["STEPS"]):
            break
        hang("collective", number)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.01)
    time.sleep(0.2)  # gloo drops Python objects of finished collectives for a moment
    dist.destroy_process_group()


main()
