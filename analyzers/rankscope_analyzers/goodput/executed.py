"""The steps that a job executed, one row each over all its ranks, from its step records. Pure.

Ranks of a synchronous job end each step together: the medians of their times are the job's. For the
phases of a step the slowest rank counts, as the others wait for it; for the exchange the fastest
one, which no other rank kept waiting.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from rankscope_agent.contract.model import FLAG_FIRST
from rankscope_analyzers.numeric import grouped
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.records import Account
from rankscope_analyzers.steps.rows import Rows, join, usable_rows
from rankscope_analyzers.steps.runs import Runs
from rankscope_analyzers.steps.tables import FrameTable

CHECKPOINT_COLUMN, EVALUATION_COLUMN = "checkpoint_seconds", "evaluation_seconds"


@dataclass(frozen=True, slots=True)
class Executed:
    """Executed steps in order; each array has one value per step, times in seconds.

    Args:
        number: step counter.
        restarts: of the job before it, within these steps.
        attempt: of the launcher, -1 if unknown.
        first: True if it is the first one of its processes, and includes their start-up.
        ranks: that reported it.
        start: Unix time, the median of the ranks.
        end: likewise.
        checkpoint: time that the step waited for checkpoints.
        evaluation: likewise for evaluations.
        data: of the rank that waited longest for input; NaN if not measured, as all below.
        usual_data: of the median rank, the lower one of two, as below.
        own: largest time of a rank other than input, exchange, checkpoint and evaluation.
        usual_own: of the median rank of the same pipeline stage.
        lag: by how much input and own work of a rank exceed those of its stage's median rank.
        slowest: that rank.
        sync: of the rank with the shortest exchange.
    """

    number: Integers
    restarts: Integers
    attempt: Integers
    first: Booleans
    ranks: Integers
    start: Floats
    end: Floats
    checkpoint: Floats
    evaluation: Floats
    data: Floats
    usual_data: Floats
    own: Floats
    usual_own: Floats
    lag: Floats
    slowest: Integers
    sync: Floats

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.number)

    def at(self, keep: Booleans | Integers | slice) -> Executed:
        """Return some of the steps."""
        return Executed(**{one.name: getattr(self, one.name)[keep] for one in fields(self)})


def executed(records: pd.DataFrame, world: int) -> Executed:
    """Return the steps in records, in order of their start.

    Args:
        records: columns of the trace contract.
        world: approximate number of ranks of the job.

    Raises:
        RecordError: a column is missing, or no record is usable.
    """
    rows, restarts = _in_runs(records, world)
    parts = _parts(rows, _beside(rows, records))
    group, count = grouped.numbers(restarts, rows.step)

    def longest(values: Floats) -> Floats:
        return grouped.largest(group, values, count)

    first = _first_of_each(group)
    stage, stages = grouped.numbers(group, parts.stage)
    own_lag = _behind(stage, parts.own, stages)
    lag = _behind(stage, parts.own + np.nan_to_num(parts.data), stages)
    own, by_lag = longest(parts.own), np.argsort(-lag, kind="stable")
    found = Executed(
        number=rows.step[first],
        restarts=restarts[first],
        attempt=longest(parts.attempt.astype(np.float64)).astype(np.int64),
        first=np.bincount(group, weights=parts.first, minlength=count) > 0,
        ranks=grouped.distinct(group, rows.rank, count),
        start=grouped.medians(group, rows.start, count),
        end=grouped.medians(group, rows.end, count),
        checkpoint=longest(parts.checkpoint),
        evaluation=longest(parts.evaluation),
        data=longest(parts.data),
        usual_data=grouped.lower_medians(group, parts.data, count),
        own=own,
        usual_own=own - longest(own_lag),
        lag=longest(lag),
        slowest=rows.rank[by_lag[_first_of_each(group[by_lag])]],
        sync=grouped.smallest(group, parts.sync, count),
    )
    return found.at(np.lexsort((found.start, found.restarts)))


def _in_runs(records: pd.DataFrame, world: int) -> tuple[Rows, Integers]:
    table = FrameTable(records)
    runs = Runs(max(world, 1))
    parts = [
        part
        for rows in usable_rows(table, Account())
        for part in runs.split(rows)
        if len(part.rows)
    ]
    restarts = [np.full(len(part.rows), part.restarts, dtype=np.int64) for part in parts]
    return join([part.rows for part in parts]), np.concatenate(restarts)


def _beside(rows: Rows, records: pd.DataFrame) -> dict[str, Floats]:
    """Return what is recorded outside the contract's columns: seconds per row, 0 if unknown."""
    return {
        name: np.nan_to_num(step_records.numeric(records[name]).astype(np.float64)[rows.row - 1])
        if name in records.columns
        else np.zeros(len(rows))
        for name in (CHECKPOINT_COLUMN, EVALUATION_COLUMN)
    }


@dataclass(frozen=True, slots=True)
class _Parts:
    """How each record's step spent its time, in seconds, and its marks."""

    checkpoint: Floats
    evaluation: Floats
    data: Floats
    own: Floats
    sync: Floats
    stage: Integers
    attempt: Integers
    first: Booleans


def _parts(rows: Rows, beside: dict[str, Floats]) -> _Parts:
    checkpoint = np.minimum(beside[CHECKPOINT_COLUMN], rows.duration)
    evaluation = np.minimum(beside[EVALUATION_COLUMN], rows.duration)
    unknown, none = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=np.int64)
    data = rows.floats.get("data_seconds", unknown)
    sync = rows.floats.get("sync_seconds", unknown)
    own = rows.duration - np.nan_to_num(data) - sync - checkpoint - evaluation
    flags = np.maximum(rows.whole.get("flags", none), 0)
    return _Parts(
        checkpoint=checkpoint,
        evaluation=evaluation,
        data=data,
        own=np.maximum(own, 0.0),
        sync=sync,
        stage=rows.groups.get("pp_stage", none),
        attempt=rows.whole.get("attempt", none - 1),
        first=(flags & FLAG_FIRST) != 0,
    )


def _behind(groups: Integers, values: Floats, count: int) -> Floats:
    """Return by how much each value exceeds the median of its group, of two the lower one."""
    usual = grouped.lower_medians(groups, values, count)[groups]
    return np.nan_to_num(values - usual)


def _first_of_each(groups: Integers) -> Integers:
    """Return the first row of each group."""
    return np.unique(groups, return_index=True)[1]
