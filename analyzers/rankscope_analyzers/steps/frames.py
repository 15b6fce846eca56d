"""Step records of one job as dense matrices, one row per executed step and one column per rank.

Records come in delivery order, with gaps, restarts and roll-backs; analyzers want to compare ranks
inside one step. `build` sorts that out and counts what it had to leave out. Units are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from rankscope_agent.contract.model import FLAG_EVALUATION, FLAG_FIRST
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.records import (
    CLOCK,
    COUNTERS,
    CPU_WAIT,
    DURATIONS,
    Dropped,
    RecordError,
)

TIMES = (*DURATIONS, CPU_WAIT)
RULES = step_records.Rules(required=(*COUNTERS, CLOCK, TIMES[0]), optional=TIMES[1:])
"""Running jobs measure what they can: all durations but that of the step may be unknown."""

PER_STEP = (
    *("steps", "segments", "usable", "starts", "step"),
    *("data", "compute", "sync", "cpu_wait", "work"),
)
"""Fields of a frame whose first axis counts executed steps."""

WORK_COLUMNS = ("tokens", "samples")
"""Counts of what a rank works on in a step, the better measure first."""

WHOLE_COLUMNS = ("gpu", "dp_group", "tp_group", "pp_stage", "attempt", "flags")

WARM_UP_STEPS = 14
"""Steps after every start that are slow on healthy hardware: lazy allocation, autotuning, cold
caches and loader workers (14 covers the slow first steps of the traces the procedure grew on)."""

WARM_UP_SHARE = 0.25
"""At most this share of a segment counts as warm-up, so that a short run can be judged at all."""

MINIMUM_PRESENCE = 0.5
"""A step that fewer ranks than this reported has no trustworthy median."""

SAME_STEP = ["segment", "step", "rank"]
"""Columns that tell whose record of which executed step one is."""

SAME_SECONDS = 1e-3
"""A record that is delivered twice has the same times, but for digits that are lost on the way."""

CONTESTED = "contested"
"""Why a record is left out if another process reports as the same rank."""

RESTART_TOLERANCE_SECONDS = 1.0
"""Ranks see one restart within the clock offset of their nodes (50 ms) and their start-up skew."""


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
        cpu_wait: (S, R) time outside of these in which the training thread was ready to run and
            waited for a CPU; NaN likewise.
        work: (S, R) tokens, or else samples, that a rank got for the step; NaN likewise.
        dropped: records that were left out.
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

    @property
    def unobserved(self) -> tuple[int, ...]:
        """Ranks that the job has and that never reported."""
        return tuple(sorted(set(range(self.world_size)) - set(self.ranks.tolist())))

    @property
    def contested_share(self) -> float:
        """Return the share of the steps of all processes that were left out for one rank's two."""
        contested = sum(one.count for one in self.dropped if one.reason == CONTESTED)
        kept = int(np.isfinite(self.step).sum())
        return contested / max(1, contested + kept)

    @property
    def began_unix_seconds(self) -> float | None:
        """When the first step began, None where no step says."""
        known = self.starts[np.isfinite(self.starts)]
        return float(known.min()) if known.size else None

    def working(self) -> Floats:
        """Return (S, R) seconds in which a rank did what its peers wait for: input and compute."""
        return np.nan_to_num(self.data) + self.compute

    def busy(self) -> Floats:
        """Return (S, R) seconds in which a rank held its peers up: work, and waits for a CPU."""
        return self.working() + np.nan_to_num(self.cpu_wait)

    def rows(self, keep: Booleans) -> StepFrame:
        """Return the frame with the steps marked in `keep` (S,) alone."""
        return replace(self, **{name: getattr(self, name)[keep] for name in PER_STEP})

    def usable_only(self) -> StepFrame:
        """Return the frame without the steps that must not be judged."""
        return self.rows(self.usable)

    def timed_only(self) -> StepFrame:
        """Return the frame without steps of which nobody's compute is known, if any is.

        Flight Recorders are looked into now and then: what lies between is no end of a fault.
        """
        known = np.asarray(np.isfinite(self.compute).any(axis=1), dtype=np.bool_)
        return self.rows(known) if known.any() and not known.all() else self


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
    account = step_records.Account()
    rows = _clean(job_id, records, account)
    rows = rows.assign(segment=segments(rows))
    if newest_run:
        rows = rows[rows["segment"] == rows["segment"].max()]
    rows = _once(rows, account)
    executed, row_index = _executed_steps(rows)
    ranks, rank_index = np.unique(rows["rank"].to_numpy(np.int64), return_inverse=True)
    shape = (len(executed), len(ranks))
    matrices = {
        name: _scatter(rows, name, row_index, rank_index, shape) for name in (CLOCK, *TIMES)
    }
    runs = executed["segment"].to_numpy(np.int64)
    present = np.isfinite(matrices["step_seconds"]).mean(axis=1)
    judged = present >= MINIMUM_PRESENCE
    judged &= ~_evaluation(rows, row_index, shape[0]) & ~_warm_up(runs)
    last_rows = rows.drop_duplicates("rank", keep="last").sort_values("rank")
    return StepFrame(
        job_id=job_id,
        world_size=max(world_size or 0, len(ranks), int(ranks.max()) + 1),
        ranks=ranks,
        nodes=tuple(str(node) for node in last_rows["node"]),
        gpus=last_rows["gpu"].to_numpy(np.int64),
        stages=last_rows["pp_stage"].to_numpy(np.int64),
        groups=last_rows["dp_group"].to_numpy(np.int64),
        steps=executed["step"].to_numpy(np.int64),
        segments=runs,
        usable=judged,
        starts=matrices["t_start_unix_seconds"],
        step=matrices["step_seconds"],
        data=matrices["data_seconds"],
        compute=matrices["compute_seconds"],
        sync=matrices["sync_seconds"],
        cpu_wait=matrices[CPU_WAIT],
        work=_scatter(rows, "work", row_index, rank_index, shape),
        dropped=account.dropped,
    )


def _clean(job_id: str, records: pd.DataFrame, account: step_records.Account) -> pd.DataFrame:
    """Return the usable records in order of their start, with every column as a number."""
    try:
        step_records.require(records.columns, RULES.required)
        present = (*RULES.required, *(name for name in RULES.optional if name in records.columns))
        table = {name: step_records.numeric(records[name]) for name in present}
        number = np.arange(1, len(records) + 1)
        rules = step_records.Rules(RULES.required, present[len(RULES.required) :])
        keep = step_records.usable(table, rules, number, account)
        if not len(records) or (keep is not None and not keep.any()):
            raise account.nothing_left()
    except RecordError as error:
        raise RecordError(f"job {job_id}: {error}") from error
    rows = pd.DataFrame({name: table.get(name, np.nan) for name in (*present, *TIMES)})
    rows["row"] = number
    rows["work"] = _work(records)
    rows["node"] = records["node"].to_numpy() if "node" in records.columns else "unknown"
    for name in WHOLE_COLUMNS:
        rows[name] = _whole(records, name)
    rows = rows if keep is None else rows[keep]
    return rows.sort_values(CLOCK, kind="stable")


def _work(records: pd.DataFrame) -> Floats:
    """Return how much each record's rank was given to do, NaN where nobody counted.

    Tokens are a better measure of work than samples, which may be of unequal length.
    """
    for name in WORK_COLUMNS:
        if name in records.columns:
            counts = step_records.numeric(records[name]).astype(np.float64)
            if (counts > 0).any():
                return np.where(np.isfinite(counts) & (counts >= 0), counts, np.nan)
    return np.full(len(records), np.nan)


def _whole(records: pd.DataFrame, name: str) -> Integers:
    unknown = -1 if name == "gpu" else 0
    if name not in records.columns:
        return np.full(len(records), unknown, dtype=np.int64)
    values = step_records.numeric(records[name]).astype(np.float64)
    known = np.abs(values) < step_records.LARGEST_COUNTER  # neither NaN nor infinite either
    return np.where(known, values, unknown).astype(np.int64)


def _once(rows: pd.DataFrame, account: step_records.Account) -> pd.DataFrame:
    """Return the first record of each rank in each executed step."""
    again = np.flatnonzero(rows.duplicated(SAME_STEP))
    if not len(again):
        return rows
    number = rows["row"].to_numpy(np.int64)
    contested = _contested(rows, again)
    for which, dropped in ((~contested, step_records.duplicates), (contested, _of_two)):
        if which.any():
            account.add(dropped(again[which], number))
    return rows.drop(rows.index[again])


def _contested(rows: pd.DataFrame, again: Integers) -> Booleans:
    """Return which repeated records are another process's: of other times than the first."""
    repeated = rows.iloc[again]
    first = repeated[SAME_STEP].merge(rows.drop_duplicates(SAME_STEP), on=SAME_STEP, how="left")
    apart = [
        np.abs(first[name].to_numpy(np.float64) - repeated[name].to_numpy(np.float64))
        for name in (CLOCK, *DURATIONS)
    ]
    return np.asarray(np.fmax.reduce(apart) > SAME_SECONDS)


def _of_two(again: Integers, number: Integers) -> Dropped:
    what = "its rank has reported that step with other times: two processes claim one rank"
    return Dropped(CONTESTED, len(again), int(number[again].min()), what)


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
