"""The steps that a job executed, one row each over all its ranks, from its step records. Pure.

Ranks of a synchronous job end each step together: the medians of their times are the job's. Of what
a step was spent on, the slowest rank counts, as the others wait for it; of the exchange the fastest
one, which no other rank kept waiting.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from rankscope_agent.contract.model import FLAG_FIRST
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.records import Account
from rankscope_analyzers.steps.rows import Rows, join, usable_rows
from rankscope_analyzers.steps.runs import Runs
from rankscope_analyzers.steps.tables import FrameTable

CHECKPOINT_COLUMN, EVALUATION_COLUMN = "checkpoint_seconds", "evaluation_seconds"


@dataclass(frozen=True, slots=True)
class Executed:
    """Executed steps in order; each array has one value a step, times in seconds.

    Args:
        number: step counter.
        restarts: of the job before it, within these steps.
        attempt: of the launcher, -1 where that is unknown.
        first: it is the first one of its processes, and holds their start-up.
        ranks: that reported it.
        start: Unix time, the median of the ranks.
        end: likewise.
        checkpoint: that the step waited for checkpoints.
        evaluation: likewise for evaluations.
        data: of the rank that waited longest for input; NaN where not measured, as all below.
        usual_data: of the median rank, the lower one of two, as below.
        own: of the rank that was longest in neither input, exchange, checkpoint nor evaluation.
        usual_own: of the median rank of the same pipeline stage.
        lag: by how much input and own work of a rank exceed those of its stage's median rank.
        slowest: that rank.
        sync: of the rank that was shortest in the exchange.
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

    def at(self, keep: Booleans | slice) -> Executed:
        """Return some of the steps."""
        return Executed(**{one.name: getattr(self, one.name)[keep] for one in fields(self)})


def executed(records: pd.DataFrame, world: int) -> Executed:
    """Return the steps that records tell of, by when they began.

    Args:
        records: columns of the trace contract.
        world: ranks of the job, approximately.

    Raises:
        RecordError: a column is missing, or no record is usable.
    """
    rows, restarts = _in_runs(records, world)
    beside = {
        name: np.nan_to_num(step_records.numeric(records[name]).astype(np.float64)[rows.row - 1])
        if name in records.columns
        else np.zeros(len(rows))
        for name in (CHECKPOINT_COLUMN, EVALUATION_COLUMN)
    }
    table = _table(rows, restarts, beside)
    groups = table.groupby(["restarts", "step"], sort=False)
    slowest = table.loc[groups["lag"].idxmax().to_numpy(), "rank"].to_numpy(np.int64)
    found = Executed(
        number=groups["step"].first().to_numpy(np.int64),
        restarts=groups["restarts"].first().to_numpy(np.int64),
        attempt=groups["attempt"].max().to_numpy(np.int64),
        first=groups["first"].any().to_numpy(np.bool_),
        ranks=np.asarray(groups["rank"].nunique(), dtype=np.int64),
        start=groups["start"].median().to_numpy(np.float64),
        end=groups["end"].median().to_numpy(np.float64),
        checkpoint=groups["checkpoint"].max().to_numpy(np.float64),
        evaluation=groups["evaluation"].max().to_numpy(np.float64),
        data=groups["data"].max().to_numpy(np.float64),
        usual_data=groups["data"].quantile(interpolation="lower").to_numpy(np.float64),
        own=groups["own"].max().to_numpy(np.float64),
        usual_own=(groups["own"].max() - groups["own_lag"].max()).to_numpy(np.float64),
        lag=groups["lag"].max().to_numpy(np.float64),
        slowest=slowest,
        sync=groups["sync"].min().to_numpy(np.float64),
    )
    order = np.lexsort((found.start, found.restarts))
    return Executed(**{one.name: getattr(found, one.name)[order] for one in fields(found)})


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


def _table(rows: Rows, restarts: Integers, beside: dict[str, Floats]) -> pd.DataFrame:
    """Return a table of records; lags are what ranks exceed their stage's median by."""
    checkpoint = np.minimum(beside[CHECKPOINT_COLUMN], rows.duration)
    evaluation = np.minimum(beside[EVALUATION_COLUMN], rows.duration)
    unknown = np.full(len(rows), np.nan)
    data = rows.floats.get("data_seconds", unknown)
    sync = rows.floats.get("sync_seconds", unknown)
    own = rows.duration - np.nan_to_num(data) - sync - checkpoint - evaluation
    flags = np.maximum(rows.whole.get("flags", np.zeros(len(rows), dtype=np.int64)), 0)
    stage = rows.groups.get("pp_stage", np.zeros(len(rows), dtype=np.int64))
    table = pd.DataFrame(
        {
            "restarts": restarts,
            "step": rows.step,
            "rank": rows.rank,
            "stage": stage,
            "attempt": rows.whole.get("attempt", np.full(len(rows), -1, dtype=np.int64)),
            "first": (flags & FLAG_FIRST) != 0,
            "start": rows.start,
            "end": rows.end,
            "checkpoint": checkpoint,
            "evaluation": evaluation,
            "data": data,
            "own": np.maximum(own, 0.0),
            "sync": sync,
        }
    )
    table["busy"] = table["own"] + table["data"].fillna(0.0)
    keys = ["restarts", "step", "stage"]
    # Of two ranks the faster one is the usual one.
    usual = table.groupby(keys, sort=False)[["own", "busy"]].quantile(interpolation="lower")
    table = table.join(usual.add_prefix("usual_"), on=keys)
    table["own_lag"] = (table["own"] - table["usual_own"]).fillna(0.0)
    table["lag"] = (table["busy"] - table["usual_busy"]).fillna(0.0)
    return table
