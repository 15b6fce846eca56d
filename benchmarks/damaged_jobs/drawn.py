"""Draws small jobs from a seed, simulates them and damages their records."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
from benchmarks.damaged_jobs.damages import AT_THE_END, DAMAGES, Damage
from benchmarks.damaged_jobs.ways import DamagedJob
from benchmarks.straggler_suite import job, plan

from rankscope_agent.contract.model import STEP_COLUMNS

LAYOUTS = ((8, 1, 1), (8, 2, 2), (8, 2, 1), (16, 1, 4))
KINDS = (*plan.SUBTYPES, None)
LENGTHS = (30, 80, 180, 420)
"""Steps that are kept of a job."""
WORLDS = (None, 1, 3, 4096, 1 << 20)
"""World sizes that ranks may report instead of the true one: some worlds never complete."""


def jobs(seed: int, count: int) -> Iterator[DamagedJob]:
    """Yield damaged jobs, the same for the same seed."""
    for number in range(count):
        yield _drawn(seed, number)


def _drawn(seed: int, number: int) -> DamagedJob:
    random = np.random.default_rng([seed, number])
    drawn = plan.draw(seed + number, KINDS[number % len(KINDS)], LAYOUTS)
    made = job.simulate(drawn)
    name = f"damaged/{seed}-{number}"
    rows = wire(made, name)
    rows = rows[rows["step"] < int(random.choice(LENGTHS))]
    others = random.choice(len(DAMAGES), int(random.integers(0, 3)), replace=False).tolist()
    chosen = dict.fromkeys([number % len(DAMAGES), *others])
    damages = sorted((DAMAGES[one] for one in chosen), key=_turn)
    for damage in damages:
        if len(rows):
            rows = damage(random, rows).reset_index(drop=True)
    world = WORLDS[random.integers(len(WORLDS))] if random.random() < 0.3 else drawn.world
    meta = {} if random.random() < 0.5 else made.meta
    names = tuple(damage.__name__ for damage in damages)
    return DamagedJob(name.replace("/", "-"), rows, world, meta, names)


def _turn(damage: Damage) -> int:
    return AT_THE_END.index(damage) if damage in AT_THE_END else -1


def wire(made: job.Job, name: str) -> pd.DataFrame:
    """Return records in the columns of the wire, in order of time, the last one just ended.

    Columns that the simulator does not know are empty.
    """
    rows = made.records.sort_values("t_start_unix_seconds", kind="stable")
    parts = rows[["data_seconds", "compute_seconds", "sync_seconds"]].sum(axis=1)
    rows = rows.assign(
        job_id=name,
        attempt=0,
        samples=16,
        flags=0,
        timing_source=made.labels["timing"],
        cpu_wait_seconds=0.0,
        other_seconds=(rows["step_seconds"] - parts).clip(lower=0.0),
        microbatches=made.meta["microbatches"],
    )
    begun = rows["t_start_unix_seconds"]
    rows = rows.assign(t_start_unix_seconds=begun - begun.iloc[-1] + time.time() - 10.0)
    return rows.reindex(columns=list(STEP_COLUMNS)).reset_index(drop=True)
