"""Collectives of several ranks as agents send them, from when each rank arrives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

BEGIN_NS = 1_795_000_000 * 10**9
MS = 1_000_000


@dataclass(frozen=True)
class Call:
    """One collective: when each of its ranks arrives, in milliseconds of its step."""

    arrivals: Mapping[int, float]
    group: str = "0"
    operation: str = "all_reduce"
    durations: Mapping[int, float] = field(default_factory=dict)
    seq: int | None = None


@dataclass
class Recording:
    """Steps of equal length with the same collectives in each, as records and as windows.

    Args:
        ranks: how many there are.
        calls: of every step, in order of their launch.
        step_ms: how long a step lasts.
        steps: how many there are.
        backend: of the recorder.
        ahead_ms: of the clocks of ranks' nodes.
    """

    ranks: int
    calls: Sequence[Call]
    step_ms: float = 100.0
    steps: int = 40
    backend: str = "gloo"
    ahead_ms: Mapping[int, float] = field(default_factory=dict)

    def _step_ns(self, rank: int, step: int) -> int:
        ahead = self.ahead_ms.get(rank, 0.0)
        return BEGIN_NS + round((step * self.step_ms + ahead) * MS)

    def records(self) -> pd.DataFrame:
        """Give the records that a probe writes which cannot tell sync."""
        rows = [
            {
                "step": step,
                "rank": rank,
                "node": f"n{rank}",
                "gpu": 0,
                "t_start_unix_seconds": round(self._step_ns(rank, step) / 1e9, 6),
                "step_seconds": self.step_ms / 1e3,
                "data_seconds": None,
                "compute_seconds": None,
                "sync_seconds": None,
                "dp_group": 0,
                "tp_group": rank,
                "pp_stage": 0,
                "timing_source": "none",
            }
            for step in range(self.steps)
            for rank in range(self.ranks)
        ]
        table = pd.DataFrame(rows)
        durations = ["data_seconds", "compute_seconds", "sync_seconds"]
        table[durations] = table[durations].astype(float)
        return table

    def window(self, rank: int, first: int = 0, end: int | None = None) -> dict[str, Any]:
        """Give the window of a rank that holds the steps from one to before another."""
        end = self.steps if end is None else end
        rows: list[tuple[str, str, int, int, int]] = []
        seen: dict[str, int] = {}
        for step in range(end):
            for call in self.calls:
                seen[call.group] = seen.get(call.group, 0) + 1
                if rank in call.arrivals and step >= first:
                    seq = seen[call.group] if call.seq is None else call.seq
                    time_ns = self._step_ns(rank, step) + round(call.arrivals[rank] * MS)
                    duration = call.durations.get(rank)
                    us = -1 if duration is None else round(duration * 1e3)
                    rows.append((call.group, call.operation, seq, time_ns, us))
        groups = sorted({row[0] for row in rows})
        operations = sorted({row[1] for row in rows})
        return {
            "job_id": "a/b",
            "rank": rank,
            "backend": self.backend,
            "begin_ns": self._step_ns(rank, first) - 1000,
            "end_ns": self._step_ns(rank, end) + 1000,
            "groups": groups,
            "operations": operations,
            "group": [groups.index(row[0]) for row in rows],
            "operation": [operations.index(row[1]) for row in rows],
            "seq": [row[2] for row in rows],
            "time_ns": [row[3] for row in rows],
            "duration_us": [row[4] for row in rows],
        }

    def windows(self, first: int = 0, end: int | None = None) -> list[dict[str, Any]]:
        """Give the windows of all ranks over the same steps."""
        return [self.window(rank, first, end) for rank in range(self.ranks)]
