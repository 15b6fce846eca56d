"""Runs a command of rankscope on a Dask cluster of two workers, and counts what each did.

python -m benchmarks.local_cluster COUNTS.json diagnose --trace DIR --verdicts OUT.json
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed import LocalCluster, SchedulerPlugin

from rankscope_analyzers import cli

WORKERS = 2


class Finished(SchedulerPlugin):  # type: ignore[misc]  # Dask's classes have no types
    """Counts the tasks that each worker finished."""

    def __init__(self) -> None:
        self.by_worker: Counter[str] = Counter()

    def transition(self, key: object, start: str, finish: str, *_: object, **more: Any) -> None:
        """Record a task's transition from one state to another."""
        if (start, finish) == ("processing", "memory"):
            self.by_worker[str(more["worker"])] += 1


def run(counts: Path, words: Sequence[str]) -> int:
    """Run the command; write how many tasks each worker finished."""
    finished = Finished()
    options: dict[str, Any] = {"n_workers": WORKERS, "threads_per_worker": 1}
    with LocalCluster(**options, dashboard_address=None) as cluster:
        cluster.scheduler.add_plugin(finished)
        idle = dict.fromkeys(cluster.scheduler.workers, 0)
        code = cli.main([*words, "--scheduler", cluster.scheduler_address])
    counts.write_text(json.dumps(idle | finished.by_worker))
    return code


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
