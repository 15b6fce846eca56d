"""Compares an agent's values for a job with the job's own diary. Pure, except for reading that."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.checkpoint_runs.run import RANKS, Page, value

Diary = Sequence[Mapping[str, Any]]
TOLERANCE = 0.01
"""Relative tolerance of measured values, one per cent; counts are equal."""


@dataclass(frozen=True, slots=True)
class Row:
    """One value: the agent's, and the one in the job's diary; None for absent."""

    name: str
    exported: float | None
    own: float | None
    is_count: bool = True

    @property
    def right(self) -> bool:
        """Return True if both agree."""
        if self.exported is None or self.own is None:
            return self.exported is self.own
        if self.is_count:
            return self.exported == self.own
        return math.isclose(self.exported, self.own, rel_tol=TOLERANCE)


def diary(folder: Path, attempt: str, rank: int) -> Diary:
    """Return a rank's diary."""
    text = (folder / f"{attempt}-{rank}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def rows(page: Page, folder: Path) -> Iterator[Row]:
    """Yield all values that can be compared."""
    for rank in range(RANKS):
        attempts = [diary(folder, attempt, rank) for attempt in ("first", "second")]
        yield from _of_rank(page, rank, [line for lines in attempts for line in lines])
        yield _ratio(page, rank, "learning_rate", 0.5)
        yield _ratio(page, rank, "batch_samples", 2.0)
    names = [
        {line["name"] for line in diary(folder, "first", rank) if line["what"] == "save-began"}
        for rank in range(RANKS)
    ]
    both = float(len(set.intersection(*names)))
    yield Row("files of two ranks", value(page, "checkpoint_shared_paths_total"), both)


def _of_rank(page: Page, rank: int, lines: Diary) -> Iterator[Row]:
    def exported(name: str, **labels: str) -> float | None:
        return value(page, name, rank=str(rank), **labels)

    began = [line for line in lines if line["what"] in ("save-began", "emergency-began")]
    ended = [line for line in lines if line["what"] in ("save", "emergency")]
    good = [line for line in ended if line["outcome"] == "done"]
    loads = [line for line in lines if line["what"] == "load"]
    losses = [line["value"] for line in lines if line["what"] == "loss"]
    bad = [value for value in losses if not math.isfinite(value)]
    died = sum(line["what"] == "worker-died" for line in lines)
    counts = {
        "checkpoint_writes_total": len(began),
        "checkpoint_write_failures_total": len(began) - len(good),
        "checkpoint_loads_total": len(loads),
        "checkpoint_load_failures_total": sum(line["outcome"] != "done" for line in loads),
        "losses_total": len(losses),
        "nonfinite_losses_total": len(bad),
        "loader_worker_deaths_total": died,
    }
    for name, own in counts.items():
        yield Row(f"rank {rank}: {name}", exported(name), float(own))
    for outcome in ("done", "failed"):
        own = sum(line["what"] == "emergency" and line["outcome"] == outcome for line in lines)
        counted = exported("checkpoint_emergency_writes_total", outcome=outcome)
        yield Row(f"rank {rank}: after SIGTERM, {outcome}", counted, float(own) if own else None)
    measured = {
        "checkpoint_write_seconds_total": sum(line["seconds"] for line in good),
        "checkpoint_last_write_seconds": good[-1]["seconds"],
        "checkpoint_last_success_timestamp_seconds": good[-1]["at"],
        "loss": losses[-1],
    }
    for name, own_value in measured.items():
        yield Row(f"rank {rank}: {name}", exported(name), own_value, is_count=False)


def _ratio(page: Page, rank: int, quantity: str, own: float) -> Row:
    exported = value(page, "restart_ratio", rank=str(rank), quantity=quantity)
    return Row(f"rank {rank}: {quantity} over that before", exported, own)
