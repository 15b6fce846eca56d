"""Turn a plan into what every rank needs in every step of one run between restarts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.straggler_suite.physics import Demands, Floats
from benchmarks.straggler_suite.plan import GPUS_PER_NODE, Fault, Plan
from numpy.random import Generator

WARM_UP = np.array([3.0, 1.8, 1.4, 1.2, 1.1, 1.05])
"""Slow first steps after every start, as a factor on compute."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Executed steps between two starts.

    Args:
        first: index of the first executed step.
        counters: (S,) step counter of each.
        slots: (R,) physical GPU of each rank.
        replicas: data-parallel size.
    """

    first: int
    counters: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    replicas: int


def demands(plan: Plan, stretch: Stretch) -> Demands:
    """Return what the ranks need; the same seed gives the same noise with and without faults."""
    random = np.random.default_rng([plan.seed, stretch.first])
    count = len(stretch.counters)
    shape = (count, plan.pipeline, stretch.replicas, plan.tensor)
    kernel, stall, data = _own_time(plan, stretch, random, shape)
    groups = (count, plan.pipeline, plan.tensor)
    base = plan.transfer * np.exp(plan.transfer_noise * random.standard_normal(groups))
    node = (stretch.slots // GPUS_PER_NODE).reshape(shape[1:])
    write, evaluation = _special(plan, stretch, random, node)
    needs = Demands(
        kernel=kernel,
        data=data,
        stall=stall,
        transfer=base,
        excess=np.zeros(groups),
        hop_end=np.zeros(shape, dtype=np.bool_),
        write=write,
        after=plan.compute * 0.02 * np.exp(0.03 * random.standard_normal(count)) + evaluation,
        jitter=np.abs(random.standard_normal(shape)) * 2e-4 * plan.compute,
    )
    for fault in plan.faults:
        needs = _suffer(plan, stretch, needs, fault)
    return needs


def _own_time(
    plan: Plan, stretch: Stretch, random: Generator, shape: tuple[int, ...]
) -> tuple[Floats, Floats, Floats]:
    traits = np.random.default_rng([plan.seed, 1])
    silicon = np.clip(1 + plan.silicon * traits.standard_normal(plan.world), 0.97, 1.03)
    stages = np.clip(1 + 0.015 * traits.standard_normal(plan.pipeline), 0.97, 1.03)
    kernel = plan.compute * silicon[stretch.slots].reshape(shape[1:]) * stages[:, None, None]
    kernel = kernel * np.exp(plan.kernel_noise * random.standard_normal(shape))
    kernel *= np.exp(plan.step_length_noise * random.standard_normal((shape[0], 1, 1, 1)))
    kernel *= np.exp(plan.replica_length_noise * random.standard_normal((shape[0], 1, shape[2], 1)))
    warm = np.ones(shape[0])
    warm[: len(WARM_UP)] = WARM_UP[: shape[0]]
    stall = plan.compute * 0.004 * np.abs(random.standard_normal(shape))
    stall += (random.random(shape) < 2e-5) * plan.compute * random.uniform(0.05, 0.3, shape)
    data = plan.data * np.exp(0.4 * random.standard_normal(shape))
    return kernel * warm[:, None, None, None], stall, data


def _special(
    plan: Plan, stretch: Stretch, random: Generator, node: npt.NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Return checkpoint writing (S, P, D, T) and evaluation (S,)."""
    count = len(stretch.counters)
    write = np.zeros((count, *node.shape))
    if plan.checkpoint_period:
        due = (stretch.counters + 1) % plan.checkpoint_period == 0
        speed = np.exp(0.06 * random.standard_normal((count, plan.world // GPUS_PER_NODE + 1)))
        write[due] = plan.checkpoint_seconds * speed[due][:, node]
    evaluation = np.zeros(count)
    if plan.evaluation_period:
        evaluation[(stretch.counters + 1) % plan.evaluation_period == 0] = plan.evaluation_seconds
    return write, evaluation


def _suffer(plan: Plan, stretch: Stretch, needs: Demands, fault: Fault) -> Demands:
    """Add one fault, in place."""
    shape = needs.kernel.shape
    now = np.arange(stretch.first, stretch.first + shape[0])
    random = np.random.default_rng([plan.seed, stretch.first, 9])
    on = ((now >= fault.first) & (now < fault.last)).astype(np.float64)
    if fault.subtype == "ramp":
        on *= np.clip((now - fault.first + 1) / 30, 0, 1)
    if fault.subtype == "intermittent":
        on *= _bursts(random, len(now), fault.duty)
    slots = stretch.slots.reshape(shape[1:])
    whole_node = plan.strikes_node(fault)
    struck = (
        slots // GPUS_PER_NODE == fault.slot // GPUS_PER_NODE if whole_node else slots == fault.slot
    )
    amount = on[:, None, None, None] * struck[None]
    _EFFECTS[fault.kind](plan, needs, fault, on, amount, random)
    return needs


def _bursts(random: Generator, count: int, duty: float) -> Floats:
    """Return runs of about 12 steps that are on for a fraction `duty` of the time."""
    state = random.random(count // 12 + 1) < duty
    return np.asarray(np.repeat(state, 12)[:count], dtype=np.float64)


def _slow_kernels(
    plan: Plan, needs: Demands, fault: Fault, on: Floats, amount: Floats, random: Generator
) -> None:
    needs.kernel[:] *= 1 + (fault.strength - 1) * amount


def _slow_input(
    plan: Plan, needs: Demands, fault: Fault, on: Floats, amount: Floats, random: Generator
) -> None:
    noise = np.exp(0.2 * random.standard_normal(amount.shape))
    needs.data[:] += fault.strength * plan.compute * amount * noise


def _slow_link(
    plan: Plan, needs: Demands, fault: Fault, on: Floats, amount: Floats, random: Generator
) -> None:
    struck = amount.max(axis=0) > 0
    hit = struck.any(axis=1)
    noise = np.exp(0.05 * random.standard_normal((len(on), *hit.shape)))
    excess = (fault.strength - 1) * plan.transfer * on[:, None, None] * hit[None] * noise
    needs.transfer[:] += excess
    needs.excess[:] += excess
    other = np.roll(struck, 1, axis=1) & ~struck
    needs.hop_end[:] |= (struck | other)[None]


def _slow_storage(
    plan: Plan, needs: Demands, fault: Fault, on: Floats, amount: Floats, random: Generator
) -> None:
    if fault.subtype == "shared_input":
        noise = np.exp(0.2 * random.standard_normal(amount.shape))
        needs.data[:] += fault.strength * plan.compute * on[:, None, None, None] * noise
    else:
        share = amount if fault.subtype == "writer" else on[:, None, None, None]
        needs.write[:] *= 1 + (fault.strength - 1) * share


def _slow_everything(
    plan: Plan, needs: Demands, fault: Fault, on: Floats, amount: Floats, random: Generator
) -> None:
    if fault.subtype == "compute":
        needs.kernel[:] *= 1 + (fault.strength - 1) * on[:, None, None, None]
    else:
        needs.transfer[:] *= 1 + (fault.strength - 1) * on[:, None, None]


def _uneven_work(
    plan: Plan, needs: Demands, fault: Fault, on: Floats, amount: Floats, random: Generator
) -> None:
    if fault.subtype == "stage":
        needs.kernel[:, fault.stage] *= 1 + (fault.strength - 1) * on[:, None, None]
    else:
        shape = needs.kernel.shape
        length = np.exp(fault.strength * random.standard_normal((shape[0], 1, shape[2], 1)))
        needs.kernel[:] *= 1 + (length - 1) * on[:, None, None, None]


def _stalls(
    plan: Plan, needs: Demands, fault: Fault, on: Floats, amount: Floats, random: Generator
) -> None:
    shape = needs.kernel.shape
    length = fault.strength * plan.compute * random.uniform(0.6, 1.4, shape)
    if fault.subtype == "garbage_collection":
        chance = fault.duty / (shape[1] * shape[2] * shape[3])
        hit = (random.random(shape) < chance) * on[:, None, None, None]
    else:
        busy = random.random((shape[0], 1, 1, 1)) < fault.duty
        hit = amount * busy * (random.random(shape) < 0.5)
    needs.stall[:] += hit * length


Effect = Callable[[Plan, Demands, Fault, Floats, Floats, Generator], None]
"""Given the steps in which a fault is on, and how much of it each rank has, change the needs."""

_EFFECTS: Mapping[str, Effect] = {
    "gpu_compute": _slow_kernels,
    "data_loader": _slow_input,
    "network_link": _slow_link,
    "storage_checkpoint": _slow_storage,
    "global_slowdown": _slow_everything,
    "partition_imbalance": _uneven_work,
    "host_transient": _stalls,
}
