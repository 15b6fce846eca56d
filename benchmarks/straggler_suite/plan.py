"""The properties of a simulated job: layout, healthy noise, faults. Drawn from one seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

GPUS_PER_NODE = 8

SUBTYPES: dict[str, tuple[str, ...]] = {
    "gpu_compute": ("gpu", "node", "intermittent", "born", "ramp"),
    "data_loader": ("rank", "node", "intermittent"),
    "network_link": ("rank", "node", "born"),
    "storage_checkpoint": ("writer", "all_writers", "shared_input"),
    "global_slowdown": ("compute", "fabric"),
    "partition_imbalance": ("stage", "sequence_length"),
    "host_transient": ("garbage_collection", "noisy_host"),
}
"""Every class of the contract with the ways in which it shows."""

LAYOUTS = (
    (8, 1, 1), (8, 2, 2), (16, 1, 1), (16, 4, 1), (16, 2, 2), (16, 1, 4), (32, 1, 1), (32, 4, 2),
    (32, 8, 1), (32, 2, 4), (64, 1, 1), (64, 4, 4), (64, 8, 2), (64, 2, 1),
    (128, 8, 4), (128, 4, 2),
)  # fmt: skip
"""(world, tensor, pipeline) sizes; what remains is data parallel, at least two replicas."""


LARGE_LAYOUTS = (
    (256, 8, 4), (256, 1, 1), (512, 8, 8), (512, 4, 1), (1024, 8, 8), (2048, 8, 16),
)  # fmt: skip
"""The same for sizes that do not fit on a desk; the effects of one rank drown among more others."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One injected fault.

    Args:
        kind: class of the contract.
        subtype: one of `SUBTYPES[kind]`.
        first: executed step at which it starts.
        last: executed step at which it is over, exclusive.
        strength: factor on what is slow; for host stalls, stall length in step times.
        duty: fraction of the steps between first and last that are hit.
        slot: physical GPU (node * 8 + gpu) at its centre.
        stage: heavy pipeline stage, -1 for none.
    """

    kind: str
    subtype: str
    first: int
    last: int
    strength: float
    duty: float
    slot: int
    stage: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One job. Times in seconds; noise as a standard deviation relative to the value."""

    name: str
    seed: int
    world: int
    tensor: int
    pipeline: int
    microbatches: int
    timing: str
    steps: int
    compute: float
    data: float
    transfer: float
    silicon: float
    kernel_noise: float
    step_length_noise: float
    replica_length_noise: float
    transfer_noise: float
    checkpoint_period: int
    checkpoint_seconds: float
    evaluation_period: int
    evaluation_seconds: float
    restart: int
    shrinks: bool
    missing: float
    dark: int
    silent_node: int
    faults: tuple[Fault, ...]

    def strikes_node(self, fault: Fault) -> bool:
        """Return True if a fault affects a whole node; some do on every other node only."""
        if fault.subtype in {"node", "noisy_host", "writer"}:
            return True
        either = fault.subtype in {"intermittent", "born"} and fault.slot % 2 == 0
        return either and self.world > GPUS_PER_NODE

    def without(self, fault: Fault) -> Plan:
        """Return the same job as it would have run without one of its faults."""
        return replace(self, faults=tuple(other for other in self.faults if other is not fault))


def draw_two(seed: int, kind: str | None) -> Plan:
    """Return the job of a seed with a fault of a class, and one of another class in addition.

    The second begins while the first lasts, or up to sixty steps before it.
    """
    plan = draw(seed, kind)
    if not plan.faults:
        return plan
    random = np.random.default_rng([seed, 78])
    (first,) = plan.faults
    possible = [
        other
        for other in SUBTYPES
        if other != kind and (other != "partition_imbalance" or plan.pipeline > 1)
    ]
    other = _fault(plan, str(random.choice(possible)), random)
    begin = int(np.clip(random.integers(first.first - 60, first.last - 20), 70, plan.steps - 80))
    begin = 0 if other.subtype == "born" else begin
    last = min(plan.steps, begin + int(random.integers(60, 200)))
    return replace(plan, faults=(first, replace(other, first=begin, last=last)))


def draw(seed: int, kind: str | None, layouts: Sequence[tuple[int, int, int]] = LAYOUTS) -> Plan:
    """Return the job of a seed, with one fault of a class or none."""
    random = np.random.default_rng([seed, 77])
    fits = [layout for layout in layouts if kind != "partition_imbalance" or layout[2] > 1]
    world, tensor, pipeline = fits[random.integers(len(fits))]
    steps = int(random.integers(260, 420))
    compute = float(random.uniform(0.6, 6.0))
    restart = int(random.integers(100, steps - 100)) if random.random() < 0.25 else 0
    plan = Plan(
        name=f"job-{seed:05d}",
        seed=seed,
        world=world,
        tensor=tensor,
        pipeline=pipeline,
        microbatches=int(random.choice([4, 8, 16])) if pipeline > 1 else 1,
        timing=str(random.choice(["kernel", "wall"], p=[0.65, 0.35])),
        steps=steps,
        compute=compute,
        data=compute * float(random.uniform(0.003, 0.03)),
        transfer=compute * float(random.uniform(0.05, 0.25)),
        silicon=float(random.uniform(0.004, 0.012)),
        kernel_noise=float(random.uniform(0.003, 0.015)),
        step_length_noise=float(random.choice([0.0, 0.01, 0.03])),
        replica_length_noise=float(random.choice([0.0, 0.01, 0.025])),
        transfer_noise=float(random.uniform(0.02, 0.07)),
        checkpoint_period=int(random.choice([0, 25, 40, 60], p=[0.1, 0.3, 0.3, 0.3])),
        checkpoint_seconds=compute * float(random.uniform(0.4, 4.0)),
        evaluation_period=int(random.choice([0, 50, 70])),
        evaluation_seconds=compute * float(random.uniform(0.5, 6.0)),
        restart=restart,
        shrinks=bool(restart and world >= 32 and random.random() < 0.4),
        missing=float(random.choice([0.0, 0.002, 0.02])),
        dark=int(random.integers(world)) if random.random() < 0.1 else -1,
        silent_node=int(random.integers(world // 8)) if random.random() < 0.15 else -1,
        faults=(),
    )
    if kind is None:
        return plan
    if kind == "storage_checkpoint":
        plan = replace(plan, checkpoint_period=int(random.choice([20, 25, 30])))
    return replace(plan, faults=(_fault(plan, kind, random),))


def _fault(plan: Plan, kind: str, random: np.random.Generator) -> Fault:
    subtypes = [
        name
        for name in SUBTYPES[kind]
        if (plan.world > 8 or name not in {"node", "noisy_host", "writer"})
        and (name != "stage" or plan.pipeline > 1)
        and (name != "sequence_length" or plan.world // plan.tensor // plan.pipeline >= 4)
    ]
    subtype = str(random.choice(subtypes))
    born = subtype == "born" or (subtype in {"stage", "sequence_length"} and random.random() < 0.5)
    first = 0 if born else int(random.integers(70, plan.steps - 110))
    last = min(plan.steps, first + int(random.integers(60, 200)))
    if born or kind == "storage_checkpoint":
        last = plan.steps if random.random() < 0.6 else max(last, min(first + 130, plan.steps))
    duty = {
        "intermittent": random.uniform(0.4, 0.7),
        "garbage_collection": random.uniform(0.25, 0.8),
        "noisy_host": random.uniform(0.04, 0.25),
    }.get(subtype, 1.0)
    slots = plan.world if plan.world % 8 == 0 else 8
    return Fault(
        kind, subtype, first, last, _strength(kind, subtype, random), float(duty),
        int(random.integers(slots)),
        int(random.integers(plan.pipeline)) if subtype == "stage" else -1,
    )  # fmt: skip


def _strength(kind: str, subtype: str, random: np.random.Generator) -> float:
    low, high = {
        "gpu_compute": (1.06, 1.8),
        "data_loader": (0.05, 0.8),
        "network_link": (1.5, 6.0),
        "storage_checkpoint": (0.08, 0.6) if subtype == "shared_input" else (3.0, 10.0),
        "global_slowdown": (1.1, 1.5) if subtype == "compute" else (1.6, 5.0),
        "partition_imbalance": (1.12, 1.6) if subtype == "stage" else (0.08, 0.25),
        "host_transient": (0.1, 0.8),
    }[kind]
    return float(random.uniform(low, high))
