"""Step records of one job as dense matrices, one row per executed step and one column per rank.

Records come in delivery order, with gaps, restarts and roll-backs, but analyzers need to compare
ranks within one step. `build` sorts the records and counts those that it had to leave out. Units
are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd

from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.records import CPU_WAIT, Account, Dropped, RecordError
from rankscope_analyzers.steps.rows import (
    CONTESTED,
    Rows,
    dense,
    first_of_each,
    join,
    marked_steps,
    usable_rows,
)
from rankscope_analyzers.steps.runs import Runs
from rankscope_analyzers.steps.tables import UNKNOWN_NODE, FrameTable, RecordTable

PER_STEP = (
    *("steps", "segments", "usable", "starts", "step"),
    *("data", "compute", "sync", "cpu_wait", "work"),
)
"""Fields of a frame whose first axis counts executed steps."""

WORK_COLUMNS = ("tokens", "samples")
"""Counts of what a rank processes in a step, the better measure first."""

WARM_UP_STEPS = 14
"""Steps after every start that are slow on healthy hardware: lazy allocation, autotuning, cold
caches and loader workers (14 covers the slow first steps of the traces used in development)."""

WARM_UP_SHARE = 0.25
"""At most this share of a segment counts as warm-up, so that a short run can still be judged."""

MINIMUM_PRESENCE = 0.5
"""A step that a smaller share of the ranks reported has no trustworthy median."""

MOST_CELLS = 1 << 22
"""Steps times ranks of a frame that are kept however few ranks reported a step: 32 MiB per
field."""

THIN_SHARE = 1 / 8
"""Share of a frame's ranks: in larger frames, steps that fewer reported are left out. Ranks that
never do the same step would fill all memory with cells that nobody reported."""


@dataclass(frozen=True, slots=True)
class StepFrame:
    """One job, ready to be analysed.

    Args:
        job_id: name of the job.
        world_size: ranks that the job should have; more than `ranks` if some never reported.
        ranks: (R,) global ranks, ascending.
        nodes: R node names.
        gpus: R local GPU indices, -1 where unknown.
        stages: (R,) pipeline stage of each rank.
        groups: (R,) data-parallel group of each rank.
        steps: (S,) step counter of each executed step; falls back after a restart.
        segments: (S,) number of restarts before the step.
        usable: (S,) false for warm-up, evaluation and sparsely reported steps.
        starts: (S, R) start of the step by the clock of each rank's node.
        step: (S, R) step durations.
        data: (S, R) time blocked on input; NaN where not measured or not reported.
        compute: (S, R) compute time; NaN likewise.
        sync: (S, R) time in collectives; NaN likewise.
        cpu_wait: (S, R) time outside of these in which the training thread was runnable and waited
            for a CPU; NaN likewise.
        work: (S, R) tokens, or else samples, that a rank got for the step; NaN likewise.
        dropped: records that were left out.
        without_gpus: nodes on which no GPU is known: what `gpus` has are local ranks alone.
        gpus_of_ranks: the indices of the GPUs that ranks use, by rank and node, where these need
            not be their local ranks; empty of those that may use any.
    """

    job_id: str
    world_size: int
    ranks: Integers
    nodes: tuple[str, ...]
    gpus: Integers
    stages: Integers
    groups: Integers
    steps: Integers
    segments: Integers
    usable: Booleans
    starts: Floats
    step: Floats
    data: Floats
    compute: Floats
    sync: Floats
    cpu_wait: Floats
    work: Floats
    dropped: tuple[Dropped, ...]
    without_gpus: frozenset[str] = frozenset()
    gpus_of_ranks: Mapping[tuple[int, str], str] = field(default_factory=dict)

    def gpu(self, column: int) -> str:
        """Return the GPU of a rank by its position, empty if none is known."""
        index, node = int(self.gpus[column]), self.nodes[column]
        if node in self.without_gpus:
            return ""
        known = self.gpus_of_ranks.get((int(self.ranks[column]), node))
        return known if known is not None else str(index) if index >= 0 else ""

    @property
    def unobserved(self) -> tuple[int, ...]:
        """Return the ranks that the job has and that never reported."""
        missing = np.ones(self.world_size, dtype=np.bool_)
        missing[self.ranks[self.ranks < self.world_size]] = False
        return tuple(np.flatnonzero(missing).tolist())

    @property
    def unobserved_count(self) -> int:
        """Return how many these are, without a list of them."""
        return self.world_size - int(np.count_nonzero(self.ranks < self.world_size))

    @property
    def contested_share(self) -> float:
        """Return the share of the steps of all processes left out because two claim one rank."""
        contested = sum(one.count for one in self.dropped if one.reason == CONTESTED)
        kept = int(np.isfinite(self.step).sum())
        return contested / max(1, contested + kept)

    @property
    def began_unix_seconds(self) -> float | None:
        """Return when the first step began, None if no step has a time."""
        known = self.starts[np.isfinite(self.starts)]
        return float(known.min()) if known.size else None

    @property
    def ended_unix_seconds(self) -> float | None:
        """Return when the last step ended, None if no step has a time."""
        ends = self.starts + self.step
        known = ends[np.isfinite(ends)]
        return float(known.max()) if known.size else None

    def working(self) -> Floats:
        """Return (S, R) seconds that a rank spent on what its peers wait for: input and compute."""
        return np.nan_to_num(self.data) + self.compute

    def busy(self) -> Floats:
        """Return (S, R) seconds that a rank delayed its peers: work, and waits for a CPU."""
        return self.working() + np.nan_to_num(self.cpu_wait)

    def rows(self, keep: Booleans) -> StepFrame:
        """Return the frame with only the steps marked in `keep` (S,)."""
        return replace(self, **{name: getattr(self, name)[keep] for name in PER_STEP})

    def newest_only(self) -> StepFrame:
        """Return the frame with only its newest step, if it has any."""
        return self.rows(np.arange(len(self.steps)) == len(self.steps) - 1)

    def usable_only(self) -> StepFrame:
        """Return the frame without the steps that must not be judged."""
        return self.rows(self.usable)


def build(
    job_id: str,
    records: pd.DataFrame,
    world_size: int | None = None,
    newest_run: bool = False,
) -> StepFrame:
    """Build a frame from the records of one job, in any order.

    Args:
        job_id: name of the job.
        records: columns of the trace contract; `attempt` and `flags` are used if present.
        world_size: ranks that the job should have; default: as many as reported.
        newest_run: leave out what was recorded before the last restart.

    Raises:
        RecordError: a required column is missing or no usable row is left.
    """
    account = Account()
    try:
        rows, restarts = _in_runs(FrameTable(records), account)
    except RecordError as error:
        raise RecordError(f"job {job_id}: {error}") from error
    if newest_run:
        newest = restarts == restarts.max()
        rows, restarts = rows.at(newest), restarts[newest]
    rows, restarts = _without_thin_steps(rows, restarts, account)
    steps, runs, step_index = _executed_steps(rows.step, restarts)
    ranks, rank_index = np.unique(rows.rank, return_inverse=True)
    shape = len(steps), len(ranks)
    cell = step_index * len(ranks) + rank_index
    once = first_of_each(rows, cell, len(steps) * len(ranks), account)
    if once is not None:
        rows, cell, step_index = rows.at(once), cell[once], step_index[once]

    matrix = partial(_matrix, cell, shape)
    lasted = matrix(rows.duration)
    judged = (np.isfinite(lasted).mean(axis=1) >= MINIMUM_PRESENCE) & ~_warm_up(runs)
    if "flags" in rows.whole:
        judged &= ~marked_steps(rows, step_index, shape[0])
    last = records.iloc[_last_of_each(rows) - 1]
    return StepFrame(
        job_id=job_id,
        world_size=max(world_size or 0, len(ranks), int(ranks.max()) + 1),
        ranks=ranks,
        nodes=tuple(map(str, last["node"])) if "node" in last else (UNKNOWN_NODE,) * len(ranks),
        gpus=_whole(last, "gpu", unknown=-1),
        stages=_whole(last, "pp_stage"),
        groups=_whole(last, "dp_group"),
        steps=steps,
        segments=runs,
        usable=judged,
        starts=matrix(rows.start),
        step=lasted,
        data=matrix(rows.floats.get("data_seconds")),
        compute=matrix(rows.floats.get("compute_seconds")),
        sync=matrix(rows.floats.get("sync_seconds")),
        cpu_wait=matrix(rows.floats.get(CPU_WAIT)),
        work=matrix(_work(rows)),
        dropped=account.dropped,
    )


def _matrix(cell: Integers, shape: tuple[int, int], values: Floats | None) -> Floats:
    """Return a matrix with the values in their cells, NaN elsewhere and where none are known."""
    if values is None:
        return np.full(shape, np.nan)
    return dense(cell, values, shape[0] * shape[1]).reshape(shape)


def _in_runs(records: RecordTable, account: Account) -> tuple[Rows, Integers]:
    """Return the usable records in order of their start, and the restarts before each.

    Raises:
        RecordError: a column is missing, or no record is usable.
    """
    runs = Runs(records.rank_count)
    parts = [
        part
        for rows in usable_rows(records, account)
        for part in runs.split(rows)
        if len(part.rows)
    ]
    restarts = [np.full(len(part.rows), part.restarts, dtype=np.int64) for part in parts]
    return join([part.rows for part in parts]), np.concatenate(restarts)


def _executed_steps(step: Integers, restarts: Integers) -> tuple[Integers, Integers, Integers]:
    """Return counter and restarts of each executed step in order, and each record's index."""
    order = np.lexsort((step, restarts))
    new = np.append(True, (np.diff(step[order]) != 0) | (np.diff(restarts[order]) != 0))
    index = np.empty(len(step), dtype=np.int64)
    index[order] = np.cumsum(new) - 1
    first = order[new]
    return step[first], restarts[first], index


def _without_thin_steps(rows: Rows, restarts: Integers, account: Account) -> tuple[Rows, Integers]:
    """Leave out steps that few ranks reported if they would take more memory than all others.

    Raises:
        RecordError: nothing is left.
    """
    steps, _, index = _executed_steps(rows.step, restarts)
    ranks = len(np.unique(rows.rank))
    if len(steps) * ranks <= MOST_CELLS:
        return rows, restarts
    thin = np.bincount(index)[index] < THIN_SHARE * ranks
    if not thin.any():
        return rows, restarts
    first = int(np.argmin(np.where(thin, rows.row, np.iinfo(np.int64).max)))
    what = f"few of {ranks} ranks have one of step {rows.step[first]}"
    account.add(Dropped("scattered", int(thin.sum()), int(rows.row[first]), what))
    if thin.all():
        raise account.nothing_left()
    return rows.at(~thin), restarts[~thin]


def _last_of_each(rows: Rows) -> Integers:
    """Return the number of the last record of each rank, in order of the ranks."""
    _, from_end = np.unique(rows.rank[::-1], return_index=True)
    return np.asarray(rows.row[::-1][from_end])


def _work(rows: Rows) -> Floats | None:
    """Return the amount of work each record's rank was given, None if it was not counted.

    Tokens are a better measure of work than samples, which may be of unequal length.
    """
    for name in WORK_COLUMNS:
        counts = rows.floats.get(name)
        if counts is not None and (counts > 0).any():
            return np.where(np.isfinite(counts) & (counts >= 0), counts, np.nan)
    return None


def _whole(records: pd.DataFrame, name: str, unknown: int = 0) -> Integers:
    if name not in records.columns:
        return np.full(len(records), unknown, dtype=np.int64)
    values = step_records.numeric(records[name]).astype(np.float64)
    known = np.abs(values) < step_records.LARGEST_COUNTER  # neither NaN nor infinite either
    return np.where(known, values, unknown).astype(np.int64)


def _warm_up(runs: Integers) -> Booleans:
    marked = np.zeros(len(runs), dtype=np.bool_)
    for run in np.unique(runs):
        rows = np.flatnonzero(runs == run)
        marked[rows[: min(WARM_UP_STEPS, int(len(rows) * WARM_UP_SHARE))]] = True
    return marked
