"""Measures the links between the ranks of a launcher with torch.distributed, in every rank.

All ranks go through the same rounds. In each round of pairs every rank sends to the one `offset`
further and receives from the one `offset` before, so that all of them work at once and each link
carries one message; the receiver's clock measures. Barriers separate rounds.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist

from rankscope_analyzers.fabric.judge import settled
from rankscope_analyzers.fabric.measured import DeviceSpeed, Link, Measured, Reduction

REPEATS = 3
ECHOES = 20
CONFIRMATIONS = 8
"""How often, at most, unclear results are measured again: a fault stays, other traffic and busy
processors do not."""

WARM_UPS = 2
MOST_ITERATIONS = 50
SMALL_BYTES = 8
MOST_OFFSETS = 32
"""Rounds of pairs: jobs of more ranks measure a sample of their links."""

GEMM_SIZE = 8192
COPY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    Args:
        backend: gloo, nccl, or empty for the one that fits the machine.
        sizes: bytes of the all-reduces.
        link_bytes: bytes of the message that measures a link.
        seconds: time that all-reduces of one size may take.
        timeout_seconds: a collective that takes longer fails.
    """

    backend: str
    sizes: Sequence[int]
    link_bytes: int
    seconds: float
    timeout_seconds: float


class FabricError(Exception):
    """Ranks did not find each other, or a collective failed; the message says which."""


def measure(plan: Plan, environment: Mapping[str, str] = os.environ) -> Measured | None:
    """Measure as one rank of a launcher; return what all ranks measured on rank 0, else None.

    Args:
        plan: the same in all ranks.
        environment: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them.

    Raises:
        FabricError: a variable is missing, ranks do not connect, or a collective fails.
    """
    lacking = [
        n for n in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if n not in environment
    ]
    if lacking:
        raise FabricError(
            f"{', '.join(lacking)} not set: start it in every rank of a launcher, such as"
            " torchrun --nnodes=4 --nproc-per-node=1 --no-python rankscope fabric-check"
        )
    backend = plan.backend or ("nccl" if torch.cuda.is_available() else "gloo")
    try:
        with torch.inference_mode():
            return _measured(plan, backend, environment)
    except (RuntimeError, ValueError, OSError) as error:  # how torch.distributed fails
        reason = str(error).partition("\n")[0]
        raise FabricError(f"rank {environment['RANK']}, {backend}: {reason}") from error


def _measured(plan: Plan, backend: str, environment: Mapping[str, str]) -> Measured | None:
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(environment.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=plan.timeout_seconds))
    try:
        links = _Links(device)
        own = _Own(
            environment.get("RANKSCOPE_NODE_NAME") or socket.gethostname(),
            [_reduction(links, size, plan.seconds) for size in plan.sizes],
            dict(links.rates(plan.link_bytes)),
            dict(links.round_trips()),
            _device_speed(device),
        )
        before, found = None, _together(own, backend)
        for _ in range(CONFIRMATIONS):
            if links.agreed(found is None or settled(found, before)):
                break
            own = _better(own, links, plan, device)
            before, found = found, _together(own, backend)
        return found
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True, slots=True)
class _Own:
    """What one rank measured: its all-reduces, the links to it, its echoes, its GPU."""

    host: str
    reductions: Sequence[Reduction]
    rates: Mapping[Link, float]
    round_trips: Mapping[Link, float]
    device: DeviceSpeed | None


def _better(own: _Own, links: _Links, plan: Plan, device: torch.device) -> _Own:
    """Measure links and the GPU again, and keep the better of both results."""
    rates, trips = dict(links.rates(plan.link_bytes)), dict(links.round_trips())
    now = _device_speed(device)
    if now is not None and own.device is not None:
        flops = max(now.flops, own.device.flops)
        to_device = max(now.to_device, own.device.to_device)
        now = DeviceSpeed(flops, to_device, max(now.to_host, own.device.to_host))
    return replace(
        own,
        rates={link: max(rate, rates[link]) for link, rate in own.rates.items()},
        round_trips={link: min(took, trips[link]) for link, took in own.round_trips.items()},
        device=now,
    )


def _together(own: _Own, backend: str) -> Measured | None:
    """Gather what each rank measured; return it on rank 0."""
    gathered: list[_Own] | None = None
    if dist.get_rank() == 0:
        gathered = [own] * dist.get_world_size()
    dist.gather_object(own, gathered)
    return None if gathered is None else _combined(gathered, backend)


def _combined(gathered: Sequence[_Own], backend: str) -> Measured:
    slowest = [
        Reduction(
            several[0].message_bytes,
            max(one.seconds for one in several),
            all(one.correct for one in several),
        )
        for several in zip(*(one.reductions for one in gathered), strict=True)
    ]
    return Measured(
        hosts=[one.host for one in gathered],
        backend=backend,
        reductions=slowest,
        rates={link: rate for one in gathered for link, rate in one.rates.items()},
        round_trips={link: took for one in gathered for link, took in one.round_trips.items()},
        devices={rank: one.device for rank, one in enumerate(gathered) if one.device},
    )


def _reduction(links: _Links, size: int, seconds: float) -> Reduction:
    """Time all-reduces of one size; as many on every rank as the slowest one has time for."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    data = torch.full((max(1, size // 4),), _addend(rank), device=links.device)
    dist.all_reduce(data)
    expected = sum(map(_addend, range(ranks)))
    correct = bool((data == expected).all().item())
    data.zero_()
    once = links.timed(lambda: dist.all_reduce(data), WARM_UPS)
    slowest = torch.tensor([once], dtype=torch.float64, device=links.device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    count = int(min(MOST_ITERATIONS, max(1.0, seconds / max(float(slowest.item()), 1e-6))))
    return Reduction(data.numel() * 4, links.timed(lambda: dist.all_reduce(data), count), correct)


def _addend(rank: int) -> float:
    """Return what a rank contributes to a sum that is checked.

    float32 holds whole numbers to 2^24 exactly, which no partial sum of 260,000 ranks exceeds.
    """
    return float(rank % 128 + 1)


class _Links:
    """The links of this rank."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.rank, self.ranks = device, dist.get_rank(), dist.get_world_size()

    def timed(self, run: Callable[[], object], count: int) -> float:
        """Return the mean duration of something that all ranks run together, in seconds."""
        dist.barrier()
        self._finish()
        began = time.perf_counter()
        for _ in range(count):
            run()
        self._finish()
        return (time.perf_counter() - began) / count

    def agreed(self, wanted: bool) -> bool:
        """Return rank 0's value on all ranks."""
        flag = torch.tensor([int(wanted)], device=self.device)
        dist.broadcast(flag, 0)
        return bool(flag.item())

    def rates(self, size: int) -> Iterator[tuple[Link, float]]:
        """Yield how fast each measured peer sends to this rank, in bytes per second."""
        outgoing = torch.zeros(size, dtype=torch.uint8, device=self.device)
        incoming = torch.empty_like(outgoing)
        for source, target in self._peers():
            best = min(self._received(outgoing, incoming, source, target) for _ in range(REPEATS))
            yield (source, self.rank), size / best

    def round_trips(self) -> Iterator[tuple[Link, float]]:
        """Yield how long a small message to each measured peer and its echo take, in seconds."""
        small = torch.zeros(SMALL_BYTES, dtype=torch.uint8, device=self.device)
        for source, target in self._peers():
            best = min(self._echoed(small, source, target) for _ in range(ECHOES))
            yield (self.rank, target), best

    def _peers(self) -> Iterator[Link]:
        for offset in offsets(self.ranks):
            yield (self.rank - offset) % self.ranks, (self.rank + offset) % self.ranks

    def _received(
        self, outgoing: torch.Tensor, incoming: torch.Tensor, source: int, target: int
    ) -> float:
        dist.barrier()
        self._finish()
        began = time.perf_counter()
        sent, *_, received = self._begun(outgoing, target, incoming, source)
        received.wait()
        self._finish()
        ended = time.perf_counter()
        if sent is not received:  # NCCL has one handle for both; on gloo none may be awaited twice
            sent.wait()
        return ended - began

    def _echoed(self, small: torch.Tensor, source: int, target: int) -> float:
        received, echo = torch.empty_like(small), torch.empty_like(small)
        dist.barrier()
        self._finish()
        began = time.perf_counter()
        self._exchange(small, target, received, source)
        self._exchange(received, source, echo, target)
        self._finish()
        return time.perf_counter() - began

    def _exchange(
        self, outgoing: torch.Tensor, target: int, incoming: torch.Tensor, source: int
    ) -> None:
        for one in self._begun(outgoing, target, incoming, source):
            one.wait()

    @staticmethod
    def _begun(
        outgoing: torch.Tensor, target: int, incoming: torch.Tensor, source: int
    ) -> Sequence[dist.Work]:
        send = dist.P2POp(dist.isend, outgoing, target)
        return dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, incoming, source)])

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def offsets(ranks: int) -> Sequence[int]:
    """Return which peers are measured: all of them, or those at distances spread over the ring."""
    every = range(1, ranks)
    if len(every) <= MOST_OFFSETS:
        return every
    step = len(every) / MOST_OFFSETS
    return sorted({1 + int(number * step) for number in range(MOST_OFFSETS)})


def _device_speed(device: torch.device) -> DeviceSpeed | None:
    """Return the speed of the GPU's compute and copies, None for a CPU."""
    if device.type != "cuda":
        return None
    left = torch.randn(GEMM_SIZE, GEMM_SIZE, device=device, dtype=torch.bfloat16)
    on_device = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    on_host = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)

    def best(run: Callable[[], object]) -> float:
        return min(_seconds(run, device) for _ in range(REPEATS + WARM_UPS))

    return DeviceSpeed(
        2 * GEMM_SIZE**3 / best(lambda: left @ left),
        COPY_BYTES / best(lambda: on_device.copy_(on_host)),
        COPY_BYTES / best(lambda: on_host.copy_(on_device)),
    )


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    run()
    torch.cuda.synchronize(device)
    return time.perf_counter() - began
