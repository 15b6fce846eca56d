"""Runs the agent or the watch with faults that they do not have: `planted.py MODULE NAMES FLAG...`.

Planted faults, which are active from the start, show that each invariant can be violated; the
switches of `failing` let collectors and analyzers fail for a while. The product contains none of
this.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.chaos import failing

AGENT, WATCH = "rankscope_agent", "rankscope_analyzers"
LONG = "chaos-long"
HEADER_BYTES, RECORD_BYTES = 4096, 64
KILLED_AFTER = 20
"""Steps, so that the rank has records."""

TOTALS = "rankscope_agent.sources.training.totals"
NCCL = "rankscope_agent.sources.nccl_log.collector"
PAGES = "rankscope_agent.serving.exposition"
EXPORTER = "rankscope_analyzers.watch.exporter"
INCIDENTS = "rankscope_analyzers.watch.incident_log"


@dataclass(frozen=True, slots=True)
class Plant:
    """A planted fault.

    Args:
        module: the process that has it.
        invariant: the one that it violates, a name in `invariants.INVARIANTS`.
        apply: plants it.
    """

    module: str
    invariant: str
    apply: Callable[[], None]


def _replaced(module: str, path: str, make: Callable[[Any], Any]) -> None:
    """Replace a function or method with what `make` returns for it."""
    owner = importlib.import_module(module)
    *owners, name = path.split(".")
    for one in owners:
        owner = getattr(owner, one)
    setattr(owner, name, make(getattr(owner, name)))


def _short_jobs() -> list[Path]:
    jobs = Path(os.environ["RANKSCOPE_CHAOS_FOLDER"], "jobs")
    return [path for path in sorted(jobs.glob("*")) if path.name != LONG]


def _again_and_again(act: Callable[[], None]) -> None:
    def run() -> None:
        while True:
            time.sleep(0.2)
            with contextlib.suppress(OSError, ValueError):
                act()

    threading.Thread(target=run, daemon=True).start()


def _kill_ranks() -> None:
    """Kill a rank of each job that has made some steps."""
    rings = Path(os.environ["RANKSCOPE_CHAOS_FOLDER"], "rings")
    for job in _short_jobs():
        pid = (job / "pids").read_text().split()[0]
        for ring in rings.glob(f"{pid}-*.ring"):
            with ring.open("rb") as file:
                file.seek(HEADER_BYTES + KILLED_AFTER * RECORD_BYTES)
                if any(file.read(RECORD_BYTES)):
                    os.kill(int(pid), signal.SIGKILL)


def _write_into_files() -> None:
    for job in _short_jobs():
        for path in job.glob("weights-*"):
            with path.open("ab") as file:
                file.write(b"!")


def _lose_records() -> None:
    _replaced(
        TOTALS, "RankTotals.add", lambda add: lambda self, records, at: add(self, records[:1], at)
    )


def _repeat_records() -> None:
    def twice(add: Any) -> Any:
        return lambda self, records, *more: add(self, [*records, records[-1]], *more)

    _replaced(TOTALS, "RankTotals.add", twice)


def _empty_pages() -> None:
    turns = itertools.count()
    _replaced(PAGES, "render", lambda render: lambda *all_: render(*all_) * (next(turns) % 4 > 0))


def _miss_fallbacks() -> None:
    _replaced(NCCL, "NcclLogCollector.collect", lambda _: lambda self: iter(()))


def _log_twice() -> None:
    _replaced(INCIDENTS, "_append", lambda append: lambda path, text: append(path, text * 2))


def _forget_a_job() -> None:
    def others(update: Any) -> Any:
        return lambda self, reports, *more: update(
            self, [one for one in reports if one.job_id != LONG], *more
        )

    _replaced(EXPORTER, "FindingsExporter.update", others)


def _leak() -> None:
    held: list[Any] = []

    def leaking(render: Any) -> Any:
        def made(*all_: Any) -> Any:
            held.extend((bytearray(b"x" * (4 << 20)), os.open(os.devnull, os.O_RDONLY)))
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
            return render(*all_)

        return made

    _replaced(PAGES, "render", leaking)


def _exit() -> None:
    for _ in _short_jobs():
        os._exit(3)


PLANTS: Mapping[str, Plant] = {
    "kills ranks": Plant(AGENT, "trainer ends with 0", lambda: _again_and_again(_kill_ranks)),
    "writes into files": Plant(
        AGENT, "trainer's files", lambda: _again_and_again(_write_into_files)
    ),
    "loses records": Plant(AGENT, "no record lost", _lose_records),
    "repeats records": Plant(AGENT, "no record repeated", _repeat_records),
    "empties pages": Plant(AGENT, "page never empty", _empty_pages),
    "misses fallbacks": Plant(AGENT, "no alert lost", _miss_fallbacks),
    "logs twice": Plant(WATCH, "no alert doubled", _log_twice),
    "forgets a job": Plant(WATCH, "verdict on another job", _forget_a_job),
    "exits": Plant(WATCH, "no process ends by itself", lambda: _again_and_again(_exit)),
    "leaks": Plant(AGENT, "memory, descriptors, threads", _leak),
}
"""By name."""


def main() -> int:
    """Plant the faults and run the process."""
    module, names, *flags = sys.argv[1:]
    failing.install(module)
    for name in filter(None, names.split(",")):
        PLANTS[name].apply()
    sys.argv = [module, *flags]
    return int(importlib.import_module(f"{module}.cli").main())


if __name__ == "__main__":
    sys.exit(main())
