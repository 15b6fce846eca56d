"""A training script as users have them: DDP, several buckets, BatchNorm, clipping, a logged loss.

It knows nothing of Rankscope. SLOW=<rank>:<where>:<milliseconds> makes a rank slow; if where is
`shared`, rank 0 alone loads, for all.
COMPUTING=<milliseconds> has every rank wait in its forward, as for a GPU, so that it takes less of
a core.
"""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SLOW_RANK, WHERE, MILLISECONDS = (os.environ.get("SLOW") or "-1:nowhere:0").split(":")
COMPUTING = float(os.environ.get("COMPUTING") or "0")


def delay(where):
    if where == WHERE and dist.get_rank() == int(SLOW_RANK):
        time.sleep(float(MILLISECONDS) / 1e3)


class Collate:
    def __call__(self, items):
        delay("data")
        delay("shared")
        time.sleep(0.002)
        return torch.utils.data.default_collate(items)


def batches(loader):
    if WHERE != "shared":
        yield from loader
        return
    loaded = iter(loader) if dist.get_rank() == 0 else None
    for _ in range(len(loader)):
        batch = [next(loaded) if loaded else None]
        dist.broadcast_object_list(batch, 0)
        yield batch[0]


def main():
    signal.alarm(300)  # ends the job also when the test that started it is gone
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    layers = []
    for _ in range(6):
        layers += [nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU()]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(128, 10)), bucket_cap_mb=0.1)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    data = TensorDataset(torch.randn(4096, 128), torch.randint(10, (4096,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, collate_fn=Collate())
    done, steps = 0, int(os.environ["STEPS"])
    while done < steps:
        for inputs, targets in batches(loader):
            delay("before")
            optimizer.zero_grad()
            outputs = model(inputs)
            delay("forward")
            time.sleep(COMPUTING / 1e3)
            loss = nn.functional.cross_entropy(outputs, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            delay("after")
            total = loss.detach().clone()
            dist.all_reduce(total)
            done += 1
            if done == steps:
                break
    dist.destroy_process_group()


main()
