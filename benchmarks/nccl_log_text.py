"""NCCL logs for benchmarks: a large job's start with every connection, and a trainer's output."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

RANKS_PER_NODE = 8
CHANNELS = 8
STEP_LINE = (
    "[2026-11-21 02:14:{second:02d},{milli:03d}] [INFO] [train.py:{line}:step] iteration"
    " {step}/500000 | consumed samples: {samples} | elapsed time per iteration (ms): {elapsed:.1f}"
    " | learning rate: 1.500E-04 | lm loss: {loss:.6E} | grad norm: {norm:.3f} | skipped: 0 |\n"
)


def dense(ranks: int) -> Iterator[str]:
    """Yield the start of a job with NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET, rank after rank.

    A bit more than half of the lines are connections, as in logs of this setting.
    """
    for rank in range(ranks):
        yield from _rank_start(rank, ranks)


def _rank_start(rank: int, ranks: int) -> Iterator[str]:
    node, device = divmod(rank, RANKS_PER_NODE)
    pid = 20_000 + rank
    prefix = f"gpu-{node:04d}:{pid}:{pid + 400_000} [{device}] NCCL INFO "
    comm = f"comm 0x7f{pid:06x}00 rank {rank} nranks {ranks} cudaDev {device} nvmlDev {device}"
    identity = f"{comm} busId {0x1A + device:x}000 commId 0x54fe282d32a87d85 - Init"
    yield f"{prefix}Bootstrap: Using eth0:10.0.{node % 256}.5<0>\n"
    yield f"{prefix}NCCL_SOCKET_IFNAME set by environment to eth0\n"
    yield f"{prefix}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.5<0>\n"
    yield f"{prefix}Using network IB\n"
    yield f"{prefix}ncclCommInitRank {identity} START\n"
    for line in range(12):
        yield f"{prefix}Pattern {line}, crossNic 0, nChannels 8, bw 48.000000/48.000000, type NVL\n"
    for channel in range(CHANNELS):
        yield f"{prefix}Tree {channel} : {rank} -> {rank + 1} -> {rank + 2}/-1/-1\n"
        yield f"{prefix}Ring {channel:02d} : {rank - 1} -> {rank} -> {rank + 1}\n"
        yield (
            f"{prefix}GPU Direct RDMA Enabled for GPU {device} / HCA {channel} (distance 4 <= 5)\n"
        )
    yield from _connections(prefix, rank, ranks, device)
    yield f"{prefix}Connected all rings, use ring PXN 0 GDR 1\n"
    yield f"{prefix}8 coll channels, 8 collnet channels, 0 nvls channels, 16 p2p channels\n"
    yield f"{prefix}ncclCommInitRank {identity} COMPLETE\n"


def _connections(prefix: str, rank: int, ranks: int, device: int) -> Iterator[str]:
    for channel in range(CHANNELS):
        for step in (1, 2):
            peer = (rank + step) % ranks
            before = (rank - step) % ranks
            ends = f"{rank}[{device}] -> {peer}[{peer % RANKS_PER_NODE}]"
            back = f"{before}[{before % RANKS_PER_NODE}] -> {rank}[{device}]"
            if device + step < RANKS_PER_NODE:
                yield f"{prefix}Channel {channel:02d}/0 : {ends} via P2P/IPC/read\n"
            else:
                yield (
                    f"{prefix}Channel {channel:02d}/0 : {ends} [send] via NET/IB/{device}/GDRDMA\n"
                )
            yield f"{prefix}Channel {channel:02d}/0 : {back} [receive] via NET/IB/{device}/GDRDMA\n"
            yield f"{prefix}Channel {channel:02d}/1 : {ends} via P2P/CUMEM/read\n"


def trainer(lines: int) -> Iterator[str]:
    """Yield a trainer's output, in which one line in fifteen is NCCL's."""
    random_numbers = random.Random(20261121)  # noqa: S311 - test text, no secret
    nccl = _endless_starts()
    for step in range(lines):
        if step % 15 == 14:
            yield next(nccl)
            continue
        yield STEP_LINE.format(
            second=step % 60,
            milli=step % 1000,
            line=100 + step % 50,
            step=step,
            samples=step * 1024,
            elapsed=1000 + 50 * random_numbers.random(),
            loss=2 + random_numbers.random(),
            norm=random_numbers.random(),
        )


def steady(lines: int) -> Iterator[str]:
    """Yield what a job prints while it trains: its own messages, and a step now and then."""
    steps = (line for line in trainer(1 << 40) if "iteration" in line)
    for line in range(lines):
        if line % 100 == 99:
            yield next(steps)
        else:
            stamp = f"2026-11-21 02:14:{line % 60:02d}.{line % 1000:03d}"
            what = f"worker {line % 8} fetched shard {line:06d} of 120000"
            yield f"{stamp} | DEBUG | data.loader:{line % 90} | {what}, queue {line % 17}\n"


def _endless_starts() -> Iterator[str]:
    rank = 0
    while True:
        yield from _rank_start(rank, 65_536)
        rank = (rank + 1) % 65_536


def write(path: Path, lines: Iterator[str], size: int) -> int:
    """Write lines until a file has the size; return its size in the end."""
    written = 0
    with path.open("w") as sink:
        for line in lines:
            written += sink.write(line)
            if written >= size:
                break
    return written
