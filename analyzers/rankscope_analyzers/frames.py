"""Step records of one job as dense matrices, one row per executed step and one column per rank.

Records come in delivery order, with gaps, restarts and roll-backs; analyzers want to compare ranks
inside one step. `build` sorts that out and counts what it had to leave out. Units are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rankscope_agent.model import FLAG_EVALUATION, FLAG_FIRST

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

REQUIRED_COLUMNS = ("step", "rank", "t_start_unix_seconds", "step_seconds")
DURATION_COLUMNS = ("step_seconds", "data_seconds", "compute_seconds", "sync_seconds")
PLACE_COLUMNS = ("node", "gpu", "dp_group", "tp_group", "pp_stage")

WARM_UP_STEPS = 14
"""Steps after every start that are slow on healthy hardware: lazy allocation, autotuning, cold
caches and loader workers (14 covers the slow first steps of the traces the procedure grew on)."""

WARM_UP_SHARE = 0.25
"""At most this share of a segment counts as warm-up, so that a short run can be judged at all."""

MINIMUM_PRESENCE = 0.5
"""A step that fewer ranks than this reported has no trustworthy median."""

RESTART_TOLERANCE_SECONDS = 1.0
"""Ranks see one restart within the clock offset of their nodes (50 ms) and their start-up skew."""


class RecordError(ValueError):
    """The records cannot be analysed; the message names what was seen and what was expected."""


@dataclass(frozen=True, slots=True)
class StepFrame:
    """One job, ready to be analysed.

    Args:
        job_id: name of the job.
        world_size: ranks that the job should have; more than `ranks` when some never reported.
        ranks: (R,) global ranks, rising.
        nodes: R node names.
        gpus: R local GPU indices, -1 where unknown.
        stages: (R,) pipeline stage of each rank.
        groups: (R,) data-parallel group of each rank.
        steps: (S,) step counter of each executed step; falls back after a restart.
        segments: (S,) number of restarts before the step.
        usable: (S,) false for warm-up, evaluation and thinly reported steps.
        starts: (S, R) wall clock of each rank's node when its step began.
        step: (S, R) step durations.
        data: (S, R) time blocked on input; NaN where not measured or not reported.
        compute: (S, R) compute time; NaN likewise.
        sync: (S, R) time in collectives; NaN likewise.
        dropped: (reason, rows) of records that were left out.
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
    dropped: tuple[tuple[str, int], ...]

    @property
    def unobserved(self) -> tuple[int, ...]:
        """Ranks that the job has and that never reported."""
        return tuple(sorted(set(range(self.world_size)) - set(self.ranks.tolist())))

    def busy(self) -> Floats:
        """Return (S, R) seconds in which a rank held its peers up: input and compute."""
        return np.nan_to_num(self.data) + self.compute

    def rows(self, keep: Booleans) -> StepFrame:
        """Return the frame with the steps marked in `keep` (S,) alone."""
        per_step = ("steps", "segments", "usable", "starts", "step", "data", "compute", "sync")
        return replace(self, **{name: getattr(self, name)[keep] for name in per_step})

    def usable_only(self) -> StepFrame:
        """Return the frame without the steps that must not be judged."""
        return self.rows(self.usable)


def build(
    job_id: str,
    records: pd.DataFrame,
    world_size: int | None = None,
    newest_run: bool = False,
) -> StepFrame:
    """Make a frame of the records of one job, in whatever order they come.

    Args:
        job_id: name of the job.
        records: columns of the trace contract; `attempt` and `flags` are used where present.
        world_size: ranks that the job should have; default: as many as reported.
        newest_run: leave out what was recorded before the last restart.

    Raises:
        RecordError: a required column is missing or no usable row is left.
    """
    rows, dropped = _clean(job_id, records)
    rows = rows.assign(segment=segments(rows))
    if newest_run:
        rows = rows[rows["segment"] == rows["segment"].max()]
    executed, row_index = _executed_steps(rows)
    ranks, rank_index = np.unique(rows["rank"].to_numpy(np.int64), return_inverse=True)
    shape = (len(executed), len(ranks))
    matrices = {
        name: _scatter(rows, name, row_index, rank_index, shape)
        for name in ("t_start_unix_seconds", *DURATION_COLUMNS)
    }
    runs = executed["segment"].to_numpy(np.int64)
    present = np.isfinite(matrices["step_seconds"]).mean(axis=1)
    judged = present >= MINIMUM_PRESENCE
    judged &= ~_evaluation(rows, row_index, shape[0]) & ~_warm_up(runs)
    places = rows.drop_duplicates("rank", keep="last").sort_values("rank")
    return StepFrame(
        job_id=job_id,
        world_size=max(world_size or 0, len(ranks), int(ranks.max()) + 1),
        ranks=ranks,
        nodes=tuple(str(node) for node in places["node"]),
        gpus=places["gpu"].to_numpy(np.int64),
        stages=places["pp_stage"].to_numpy(np.int64),
        groups=places["dp_group"].to_numpy(np.int64),
        steps=executed["step"].to_numpy(np.int64),
        segments=runs,
        usable=judged,
        starts=matrices["t_start_unix_seconds"],
        step=matrices["step_seconds"],
        data=matrices["data_seconds"],
        compute=matrices["compute_seconds"],
        sync=matrices["sync_seconds"],
        dropped=dropped,
    )


def _clean(job_id: str, records: pd.DataFrame) -> tuple[pd.DataFrame, tuple[tuple[str, int], ...]]:
    missing = [name for name in REQUIRED_COLUMNS if name not in records.columns]
    if missing:
        raise RecordError(
            f"job {job_id}: records lack the columns {missing}, have {list(records.columns)}"
        )
    rows = records.copy()
    for name in (*DURATION_COLUMNS, *PLACE_COLUMNS, "attempt", "flags"):
        if name not in rows.columns:
            rows[name] = _default(name)
    dropped: list[tuple[str, int]] = []
    for reason, bad in _faults(rows):
        if bad.any():
            dropped.append((reason, int(bad.sum())))
        rows = rows[~bad.reindex(rows.index, fill_value=False)]
    if rows.empty:
        raise RecordError(
            f"job {job_id}: none of {len(records)} records can be used "
            f"({', '.join(f'{count} {reason}' for reason, count in dropped) or 'there are none'})"
        )
    for name in ("gpu", "dp_group", "tp_group", "pp_stage", "attempt", "flags"):
        rows[name] = pd.to_numeric(rows[name], errors="coerce").fillna(_default(name))
    return rows.sort_values("t_start_unix_seconds", kind="stable"), tuple(dropped)


def _default(name: str) -> Any:
    return {"node": "unknown", "gpu": -1, **dict.fromkeys(DURATION_COLUMNS, np.nan)}.get(name, 0)


def _faults(rows: pd.DataFrame) -> list[tuple[str, pd.Series[bool]]]:
    for name in (*REQUIRED_COLUMNS, *DURATION_COLUMNS):
        rows[name] = pd.to_numeric(rows[name], errors="coerce")
    required = rows[list(REQUIRED_COLUMNS)].to_numpy(np.float64)
    incomplete = pd.Series(~np.isfinite(required).all(axis=1), index=rows.index)
    negative = (rows[list(DURATION_COLUMNS)] < 0).any(axis=1) | (rows[["step", "rank"]] < 0).any(
        axis=1
    )
    infinite = np.isinf(rows[list(DURATION_COLUMNS)].to_numpy(np.float64)).any(axis=1)
    keys = ["attempt", "step", "rank", "t_start_unix_seconds"]
    return [
        ("incomplete", incomplete),
        ("negative or infinite", (negative | infinite) & ~incomplete),
        ("duplicate", rows.duplicated(keys) & ~incomplete & ~negative),
    ]


def segments(rows: pd.DataFrame) -> Integers:
    """Number the runs between restarts, for rows in order of time.

    A rank's step counter that falls back, or its launcher's attempt counter that changes, is a
    restart, and what several ranks show at about the same time is one restart.
    """
    ranks = rows.groupby("rank")
    fell = (ranks["step"].diff() < 0) | (ranks["attempt"].diff().fillna(0) != 0)
    times = np.sort(rows.loc[fell, "t_start_unix_seconds"].to_numpy(np.float64))
    tolerance = max(RESTART_TOLERANCE_SECONDS, 2 * float(rows["step_seconds"].median()))
    first = np.append(True, np.diff(times) > tolerance)[: len(times)]
    starts = rows["t_start_unix_seconds"].to_numpy(np.float64)
    return np.searchsorted(times[first], starts, side="right").astype(np.int64)


def _executed_steps(rows: pd.DataFrame) -> tuple[pd.DataFrame, Integers]:
    """Give the distinct executed steps in order, and each row's index among them."""
    keys = rows[["segment", "step"]].astype(np.int64)
    executed = keys.drop_duplicates().sort_values(["segment", "step"], kind="stable")
    executed = executed.reset_index(drop=True)
    numbered = executed.assign(row=np.arange(len(executed)))
    return executed, keys.merge(numbered, how="left")["row"].to_numpy(np.int64)


def _scatter(
    rows: pd.DataFrame, name: str, row_index: Integers, rank_index: Integers, shape: tuple[int, int]
) -> Floats:
    matrix = np.full(shape, np.nan)
    matrix[row_index, rank_index] = rows[name].to_numpy(np.float64)
    return matrix


def _evaluation(rows: pd.DataFrame, row_index: Integers, count: int) -> Booleans:
    flagged = (rows["flags"].to_numpy(np.int64) & (FLAG_EVALUATION | FLAG_FIRST)) != 0
    marked = np.zeros(count, dtype=np.bool_)
    marked[row_index[flagged]] = True
    return marked


def _warm_up(runs: Integers) -> Booleans:
    marked = np.zeros(len(runs), dtype=np.bool_)
    for run in np.unique(runs):
        rows = np.flatnonzero(runs == run)
        marked[rows[: min(WARM_UP_STEPS, int(len(rows) * WARM_UP_SHARE))]] = True
    return marked
