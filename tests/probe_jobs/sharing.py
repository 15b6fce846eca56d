"""Train one model on several ranks, in copies or in shards; usage: sharing.py WHAT."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import rankscope_probe

STEPS = 4


def made() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3))  # 108 + 39 parameters


def copies() -> nn.Module:
    return DistributedDataParallel(made())


def shards() -> nn.Module:
    model = made()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def copies_of_shards() -> nn.Module:
    model = made()
    fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("copy", "shard")))
    return model


def columns() -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(made()[:1], mesh["tp"], {"0": ColwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    return model


def flat() -> nn.Module:
    return FullyShardedDataParallel(made(), device_id=torch.device("cpu"))


def flat_in_place() -> nn.Module:
    return FullyShardedDataParallel(made(), device_id=torch.device("cpu"), use_orig_params=True)


def flat_copies() -> nn.Module:
    return FullyShardedDataParallel(
        made(),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        device_id=torch.device("cpu"),
        device_mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("copy", "shard")),
    )


def plain() -> nn.Module:
    return made()


WAYS = {
    way.__name__: way
    for way in (copies, shards, copies_of_shards, columns, flat, flat_in_place, flat_copies, plain)
}

if __name__ == "__main__":
    together = "RANK" in os.environ
    if together:
        dist.init_process_group("gloo")
    model = WAYS[sys.argv[1]]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rankscope_probe.model(active_parameters=50, flops_per_sample=7e9, dtype=torch.bfloat16)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    if together:
        dist.barrier()
        dist.destroy_process_group()
