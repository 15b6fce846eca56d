"""Step records of a job of known times, for the account of its GPU time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from rankscope_agent.contract.model import FLAG_FIRST

USUAL = {"data": 0.01, "own": 0.07, "sync": 0.02}
STEP = sum(USUAL.values())

More = Callable[[int, int], Mapping[str, float]]
"""What a rank takes longer in a step than usual, by part: of step number and rank."""


def nothing(_step: int, _rank: int) -> Mapping[str, float]:
    return {}


def run(
    begin: float,
    steps: Sequence[int],
    more: More = nothing,
    ranks: int = 4,
    attempt: int = 0,
    first: bool = True,
) -> list[dict[str, object]]:
    """Return the records of one attempt: ranks that take less time wait for the others."""
    rows: list[dict[str, object]] = []
    for step in steps:
        parts = [{**USUAL, "checkpoint": 0.0, "evaluation": 0.0} for _ in range(ranks)]
        for rank, mine in enumerate(parts):
            for part, seconds in more(step, rank).items():
                mine[part] += seconds
        lasted = max(sum(mine.values()) for mine in parts)
        for rank, mine in enumerate(parts):
            rows.append(
                {
                    "job_id": "job",
                    "step": step,
                    "rank": rank,
                    "node": "node",
                    "t_start_unix_seconds": begin,
                    "step_seconds": lasted,
                    "data_seconds": mine["data"],
                    "compute_seconds": mine["own"],
                    "sync_seconds": mine["sync"] + lasted - sum(mine.values()),
                    "attempt": attempt,
                    "flags": FLAG_FIRST if first and step == steps[0] else 0,
                    "checkpoint_seconds": mine["checkpoint"],
                    "evaluation_seconds": mine["evaluation"],
                }
            )
        begin += lasted
    return rows


def end(rows: Sequence[Mapping[str, object]]) -> float:
    """Return when the last of some records ends."""
    last = rows[-1]
    return float(str(last["t_start_unix_seconds"])) + float(str(last["step_seconds"]))


def table(*runs: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    return pd.DataFrame([row for rows in runs for row in rows])
