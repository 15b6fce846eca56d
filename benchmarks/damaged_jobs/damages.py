"""What can be wrong with the records of a job: each function changes a table.

Tables have the columns of the wire (`STEP_COLUMNS`) and may get values of any type that JSON has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

Random = np.random.Generator
Damage = Callable[[Random, pd.DataFrame], pd.DataFrame]

CLOCK, STEP, RANK, NODE = "t_start_unix_seconds", "step", "rank", "node"
GROUPS = ("dp_group", "tp_group", "pp_stage")
TIMES = (
    "step_seconds", "data_seconds", "compute_seconds", "sync_seconds", "other_seconds",
    "cpu_wait_seconds", "checkpoint_seconds", "evaluation_seconds",
)  # fmt: skip
OPTIONAL = (*TIMES[1:], *GROUPS, "gpu", "attempt", "samples", "flags", "timing_source",
            "microbatches", NODE)  # fmt: skip
REQUIRED = (STEP, CLOCK, TIMES[0])

STRANGE = (
    None, "", "NaN", "-1", "\x1b[2J", True, 0, -1, -0.0, 1e-320, 1e-9, 1e300, -1e300,
    float("nan"), float("inf"), float("-inf"), 2**31, 2**53 + 1, 2**63 - 1, -(2**63) + 1,
)  # fmt: skip
"""Values that may occur instead of a number."""


def _some(random: Random, rows: pd.DataFrame) -> np.ndarray:
    """Return which rows are hit: few, many or all."""
    return random.random(len(rows)) < float(random.choice((0.01, 0.2, 0.7, 1.0)))


def _with(rows: pd.DataFrame, name: str, hit: np.ndarray, values: Sequence[object]) -> pd.DataFrame:
    column = rows[name].astype(object).to_numpy(dtype=object, copy=True)
    column[hit] = np.fromiter(values, dtype=object, count=int(hit.sum()))
    return rows.assign(**{name: column})


def one_rank(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Keep a single rank."""
    kept: pd.DataFrame = rows[rows[RANK] == random.choice(rows[RANK].unique())]
    return kept


def few_steps(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Keep one step or a few."""
    return rows[rows[STEP].isin(rows[STEP].drop_duplicates().head(random.choice((1, 2, 9, 17))))]


def few_rows(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Keep one record or a few."""
    return rows.sample(min(len(rows), int(random.choice((1, 2, 5, 40)))), random_state=random)


def no_columns(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out all optional columns."""
    return rows.drop(columns=list(OPTIONAL), errors="ignore")


def fewer_columns(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out some columns."""
    return rows[[name for name in rows.columns if name not in OPTIONAL or random.random() < 0.6]]


def without_a_required_column(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out a required column."""
    return rows.drop(columns=str(random.choice(REQUIRED)))


def contradicting_groups(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Give ranks random groups: different ones in each record, or constant ones."""
    ranks = rows[RANK].astype(np.int64).to_numpy() % 4096
    for name in GROUPS:
        values = random.integers(-2, random.choice((2, 9, 10**6)), len(rows))
        if random.random() < 0.5:
            values = random.integers(0, 5, 4096)[ranks]
        rows = rows.assign(**{name: values})
    return rows


def one_place(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Let all ranks claim one position in the layout, or two ranks one number."""
    if random.random() < 0.5:
        return rows.assign(**dict.fromkeys(GROUPS, 0))
    return rows.assign(**{RANK: rows[RANK].astype(np.int64) // 2})


def clocks_hours_apart(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Set the clock of each rank by up to hours, or years."""
    most = float(random.choice((60.0, 4 * 3600.0, 3e8)))
    ranks = rows[RANK].astype(np.int64).to_numpy() % 4096
    return rows.assign(**{CLOCK: rows[CLOCK] + random.uniform(-most, most, 4096)[ranks]})


def clock_that_stands(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Give all records one time, or times in reverse."""
    if random.random() < 0.5:
        return rows.assign(**{CLOCK: float(rows[CLOCK].iloc[0])})
    return rows.assign(**{CLOCK: -rows[CLOCK].to_numpy()})


def strange_counter(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Let the step counter stand still, run backwards, jump, or fall back repeatedly."""
    steps = rows[STEP].astype(np.int64).to_numpy()
    choices: tuple[np.ndarray, ...] = (
        np.zeros_like(steps),
        steps[::-1].copy(),
        steps * 10**9,
        steps % int(random.integers(2, 20)),
        random.integers(0, 2**40, len(steps)),
    )
    return rows.assign(**{STEP: choices[random.integers(len(choices))]})


def far_ranks(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Number the ranks in another order, with gaps."""
    known = rows[RANK].astype(np.int64).unique()
    most = int(random.choice((len(known), 4 * len(known), 10**4)))
    other = dict(zip(known, random.choice(most, len(known), replace=False).tolist(), strict=True))
    return rows.assign(**{RANK: rows[RANK].map(other)})


def strange_values(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Put values that nobody measures into some columns."""
    names = [name for name in rows.columns if name != "job_id"]
    for name in random.choice(names, min(3, len(names)), replace=False):
        hit = _some(random, rows)
        chosen = random.integers(len(STRANGE), size=int(hit.sum()))
        if random.random() < 0.5:
            chosen[:] = random.integers(len(STRANGE))
        rows = _with(rows, str(name), hit, [STRANGE[one] for one in chosen])
    return rows


def nothing_measured(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Let some times be unknown, in some records or all, or be zero."""
    value = random.choice(np.array((None, 0.0)))
    for name in TIMES[1:]:
        if name in rows.columns and random.random() < 0.5:
            hit = _some(random, rows)
            rows = _with(rows, name, hit, [value] * int(hit.sum()))
    return rows


def noise(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Change every time of every record at random."""
    strength = random.choice((0.5, 1.5, 4.0))
    for name in TIMES[:4]:
        if name in rows.columns:
            factor = np.exp(strength * random.standard_normal(len(rows)))
            rows = rows.assign(**{name: pd.to_numeric(rows[name], errors="coerce") * factor})
    return rows


def other_fault_in_each_window(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Let another rank be slow in another way every few steps."""
    window = rows[STEP].astype(np.int64).to_numpy() // int(random.integers(8, 60)) % 512
    ranks = rows[RANK].astype(np.int64).unique()
    slow = rows[RANK].to_numpy() == random.choice(ranks, 512)[window]
    for kind, name in enumerate(TIMES[1:5]):
        if name in rows.columns:
            hit = slow & (random.integers(4, size=512)[window] == kind)
            seconds = pd.to_numeric(rows[name], errors="coerce").to_numpy() + hit * 3.0
            rows = rows.assign(**{name: seconds})
    lasted = pd.to_numeric(rows[TIMES[0]], errors="coerce").to_numpy()
    return rows.assign(**{TIMES[0]: lasted + slow * 3.0})


def shuffled(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Deliver records late and twice, and lose others."""
    again = rows.sample(frac=0.3, random_state=random)
    return pd.concat([rows.sample(frac=0.8, random_state=random), again], ignore_index=True)


def strange_marks(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Give attempts, flags, timing and counts any possible values."""
    count = len(rows)
    return rows.assign(
        attempt=random.integers(0, random.choice((2, 9, 65536)), count),
        flags=random.integers(0, 65536, count),
        timing_source=random.choice(("kernel", "wall", "estimate", ""), count),
        microbatches=random.integers(0, random.choice((2, 65536)), count),
        samples=random.integers(0, random.choice((2, 2**32)), count),
    )


def strange_nodes(random: Random, rows: pd.DataFrame) -> pd.DataFrame:
    """Let nodes change from record to record, with unusual names."""
    names = np.array(["", "n" * 300, "\x1b]0;x\x07", "ä/../b", None, "node-1"], dtype=object)
    return rows.assign(**{NODE: names[random.integers(len(names), size=len(rows))]})


DAMAGES: Sequence[Damage] = (
    one_rank, few_steps, few_rows, no_columns, fewer_columns, without_a_required_column,
    contradicting_groups, one_place, clocks_hours_apart, clock_that_stands, strange_counter,
    far_ranks, strange_values, nothing_measured, noise, other_fault_in_each_window, shuffled,
    strange_marks, strange_nodes,
)  # fmt: skip

AT_THE_END: Sequence[Damage] = (
    one_rank, few_steps, few_rows, strange_values, no_columns, fewer_columns,
    without_a_required_column,
)  # fmt: skip
"""Damages that others cannot follow, in an order in which they work."""
