"""Run a plan: records in the trace contract's columns, and their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.straggler_suite import physics
from benchmarks.straggler_suite.effects import Stretch, demands
from benchmarks.straggler_suite.plan import GPUS_PER_NODE, Fault, Plan

START = 1_760_000_000.0
RESTART_GAP_SECONDS = 90.0
CLOCK_OFFSET_SECONDS = 0.05
HOST_DETECTABLE, DETECTABLE = 0.01, 0.02


@dataclass(frozen=True, slots=True)
class Attempt:
    """The processes between two starts of a job: when they began, and how many ranks they were."""

    begin_unix_seconds: float
    world_size: int


@dataclass(frozen=True, slots=True)
class Job:
    """A simulated job as an analyzer sees it, the labels, and the starts of its processes."""

    meta: dict[str, Any]
    records: pd.DataFrame
    labels: dict[str, Any]
    attempts: tuple[Attempt, ...]


def simulate(plan: Plan) -> Job:
    """Run a plan with and without each of its faults and label the difference."""
    stretches = _stretches(plan)
    runs = [_run(plan, stretch) for stretch in stretches]
    ends = _ends(runs)
    healthy = [
        _ends([_run(plan.without(fault), stretch) for stretch in stretches])
        for fault in plan.faults
    ]
    begins = [0.0] + [e[-1] + RESTART_GAP_SECONDS for e in ends[:-1]]
    parts = [
        _records(plan, stretch, run, START + begin)
        for stretch, run, begin in zip(stretches, runs, begins, strict=True)
    ]
    random = np.random.default_rng([plan.seed, 3])
    records = pd.concat(parts, ignore_index=True)
    records = records[_delivered(plan, records, random)]
    records = records.sample(frac=1, random_state=plan.seed % 2**31).reset_index(drop=True)
    attempts = tuple(
        Attempt(START + begin, len(stretch.slots))
        for stretch, begin in zip(stretches, begins, strict=True)
    )
    return Job(_meta(plan), records, _labels(plan, stretches, ends, healthy), attempts)


def _stretches(plan: Plan) -> list[Stretch]:
    whole = np.arange(plan.world)
    replicas = plan.world // plan.tensor // plan.pipeline
    if not plan.restart:
        return [Stretch(0, np.arange(plan.steps), whole, replicas)]
    period = plan.checkpoint_period or 30
    back = plan.restart // period * period
    slots = whole
    if plan.shrinks:
        lost = int(np.random.default_rng([plan.seed, 5]).integers(plan.world // GPUS_PER_NODE))
        kept = whole[whole // GPUS_PER_NODE != lost]
        replicas = len(kept) // plan.tensor // plan.pipeline
        slots = kept[: replicas * plan.tensor * plan.pipeline]
    first = Stretch(0, np.arange(plan.restart), whole, plan.world // plan.tensor // plan.pipeline)
    counters = np.arange(back, back + plan.steps - plan.restart)
    return [first, Stretch(plan.restart, counters, slots, replicas)]


def _run(plan: Plan, stretch: Stretch) -> physics.Times:
    return physics.run(demands(plan, stretch), plan.microbatches, plan.timing)


def _ends(runs: list[physics.Times]) -> list[np.ndarray]:
    begin, ends = 0.0, []
    for run in runs:
        ends.append(begin + run.end)
        begin = ends[-1][-1] + RESTART_GAP_SECONDS
    return ends


def _records(plan: Plan, stretch: Stretch, run: physics.Times, begin: float) -> pd.DataFrame:
    steps, ranks = len(stretch.counters), len(stretch.slots)
    rank = np.tile(np.arange(ranks), steps)
    slot = stretch.slots[rank]
    node = slot // GPUS_PER_NODE
    clocks = np.random.default_rng([plan.seed, 4])
    offset = clocks.uniform(-CLOCK_OFFSET_SECONDS, CLOCK_OFFSET_SECONDS, plan.world)
    tensor_group = rank // plan.tensor
    stage = tensor_group // stretch.replicas

    def flat(values: physics.Floats) -> np.ndarray:
        return np.asarray(values).reshape(steps, ranks).ravel()

    return pd.DataFrame(
        {
            "step": np.repeat(stretch.counters, ranks),
            "rank": rank,
            "node": np.char.mod("node-%05d", np.arange(plan.world))[node],
            "gpu": slot % GPUS_PER_NODE,
            "t_start_unix_seconds": np.round(begin + flat(run.start) + offset[node], 6),
            "step_seconds": np.round(flat(run.step), 6),
            "data_seconds": np.round(flat(run.data), 6),
            "compute_seconds": np.round(flat(run.compute), 6),
            "sync_seconds": np.round(flat(run.sync), 6),
            "dp_group": stage * plan.tensor + rank % plan.tensor,
            "tp_group": tensor_group,
            "pp_stage": stage,
        }
    )


def _delivered(plan: Plan, records: pd.DataFrame, random: np.random.Generator) -> np.ndarray:
    keep = random.random(len(records)) >= plan.missing
    keep &= records["rank"].to_numpy() != plan.dark
    if plan.silent_node >= 0:
        begin = random.uniform(0.3, 0.7) * plan.steps
        step = records["step"].to_numpy()
        silent = (step >= begin) & (step < begin + 25)
        keep &= ~(silent & (records["node"] == f"node-{plan.silent_node:05d}").to_numpy())
    return np.asarray(keep)


def _meta(plan: Plan) -> dict[str, Any]:
    return {
        "format_version": 1,
        "job": plan.name,
        "world_size": plan.world,
        "gpus_per_node": GPUS_PER_NODE,
        "tensor_parallel": plan.tensor,
        "data_parallel": plan.world // plan.tensor // plan.pipeline,
        "pipeline_parallel": plan.pipeline,
        "microbatches": plan.microbatches,
        "compute_timing": "wall" if plan.timing == "blocked" else plan.timing,
        "node_name_format": "node-%05d",
        "rank_order": "tp,dp,pp",
    }


def _labels(
    plan: Plan, stretches: list[Stretch], ends: list[np.ndarray], healthy: list[list[np.ndarray]]
) -> dict[str, Any]:
    lasted = _durations(ends)
    unix = START + np.concatenate(ends)
    return {
        "world_size": plan.world,
        "timing": plan.timing,
        "job_start_unix": START,
        "wall_seconds": float(unix[-1] - START),
        "median_step_seconds": float(np.median(lasted)),
        "exec_end_unix": unix.tolist(),
        "faults": [
            _label(plan, stretches, number, lasted, _durations(ideal), unix)
            for number, ideal in enumerate(healthy)
        ],
        "subtypes": [f.subtype for f in plan.faults],
    }


def _durations(ends: list[np.ndarray]) -> np.ndarray:
    begins = [0.0] + [e[-1] + RESTART_GAP_SECONDS for e in ends[:-1]]
    return np.concatenate([np.diff(e, prepend=b) for e, b in zip(ends, begins, strict=True)])


def _label(
    plan: Plan,
    stretches: list[Stretch],
    number: int,
    lasted: np.ndarray,
    ideal: np.ndarray,
    unix: np.ndarray,
) -> dict[str, Any]:
    fault = plan.faults[number]
    inside = slice(fault.first, fault.last)
    lost = float(1 - ideal[inside].sum() / lasted[inside].sum())
    culprits, accepted = _culprits(plan, stretches, fault)
    needed = HOST_DETECTABLE if fault.kind == "host_transient" else DETECTABLE
    return {
        "fault_id": f"{plan.name}-{number}",
        "class": fault.kind,
        "subtype": fault.subtype,
        "start_unix": float(unix[fault.first] - lasted[fault.first]),
        "end_unix": float(unix[fault.last - 1]),
        "start_exec": fault.first,
        "end_exec": fault.last,
        "culprit_ranks": sorted(culprits),
        "accept_ranks": sorted(accepted),
        "culprit_nodes": sorted({fault.slot // GPUS_PER_NODE}) if culprits else [],
        "culprit_stage": fault.stage,
        "lost_fraction": lost,
        "gpu_hours_lost": lost * float(lasted[inside].sum()) * plan.world / 3600,
        "detectable": bool(lost >= needed and culprits is not None),
    }


def _culprits(plan: Plan, stretches: list[Stretch], fault: Fault) -> tuple[set[int], set[int]]:
    """Return culprits and accepted first answers, over the runs that the fault affects."""
    if fault.subtype in {
        "all_writers", "shared_input", "compute", "fabric", "stage", "sequence_length",
        "garbage_collection",
    }:  # fmt: skip
        return set(), set()
    whole = plan.strikes_node(fault)
    culprits: set[int] = set()
    accepted: set[int] = set()
    for stretch in stretches:
        last = stretch.first + len(stretch.counters)
        if fault.last <= stretch.first or fault.first >= last:
            continue
        struck = (
            stretch.slots // GPUS_PER_NODE == fault.slot // GPUS_PER_NODE
            if whole
            else stretch.slots == fault.slot
        )
        ranks = np.flatnonzero(struck)
        culprits |= set(ranks.tolist())
        accepted |= set(_accepted(plan, stretch, fault, ranks).tolist())
    return culprits, accepted


def _accepted(plan: Plan, stretch: Stretch, fault: Fault, ranks: np.ndarray) -> np.ndarray:
    everyone = np.arange(len(stretch.slots))
    replica = everyone // plan.tensor % stretch.replicas
    if fault.kind == "network_link":
        shape = (plan.pipeline, stretch.replicas, plan.tensor)
        struck = np.isin(everyone, ranks).reshape(shape)
        return np.flatnonzero((struck | np.roll(struck, 1, axis=1)).ravel())
    if plan.timing == "wall" and fault.kind in {"gpu_compute", "host_transient"}:
        return np.flatnonzero(np.isin(replica, replica[ranks]))
    return ranks
