"""How often the right rank is named: real jobs of every kind, repeatedly, slow and healthy.

`python -m benchmarks.framework_verdicts [COUNT [WAY...]]` runs each way COUNT times (default 10)
with a slow rank, a different one each time, and COUNT times without; ten times takes about 40
minutes. Load on the machine makes the test harder and more realistic.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.probe_cost import memory_directory

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from probe_jobs.nurseries import Nurseries
from probe_jobs.ways import (
    NOBODY,
    WAYS,
    Way,
    named,
    records_in,
    run,
    verdict_on,
)

COUNT = 10


@dataclass(slots=True)
class Tally:
    """How the runs of one way ended.

    Args:
        right: runs in which the slow rank was named with its class.
        slow: runs with a slow rank.
        innocent: runs without one in which nobody was named.
        healthy: runs without one.
        wrong: what was reported otherwise.
    """

    right: int = 0
    slow: int = 0
    innocent: int = 0
    healthy: int = 0
    wrong: list[str] = field(default_factory=list)


def judge(way: Way, slow_rank: int, nurseries: Nurseries) -> str:
    """Run a job once and return what was wrong with its verdict, empty for nothing."""
    with tempfile.TemporaryDirectory(dir=memory_directory()) as folder:
        codes = [ended.code for ended in run(way, slow_rank, nurseries, Path(folder))]
        if any(codes):
            return f"exit codes {codes}"
        verdict = named(verdict_on(records_in(Path(folder)), way.ranks))
    expected = None if slow_rank == NOBODY else (way.cause, (slow_rank,))
    return "" if verdict == expected else f"expected {expected}, said {verdict}"


def runs(count: int) -> Iterator[int]:
    """Yield slow ranks, alternating with none."""
    for number in range(count):
        yield number
        yield NOBODY


def tally(way: Way, count: int, nurseries: Nurseries) -> Tally:
    """Run one way, healthy ones only if no other fault of the same job has them."""
    result = Tally()
    for number in runs(count):
        healthy = number == NOBODY
        if healthy and way.fault != "compute":
            continue
        wrong = judge(way, number if healthy else number % way.ranks, nurseries)
        if healthy:
            result.healthy, result.innocent = result.healthy + 1, result.innocent + (not wrong)
        else:
            result.slow, result.right = result.slow + 1, result.right + (not wrong)
        if wrong:
            result.wrong.append(wrong)
    return result


def main(arguments: Sequence[str]) -> int:
    """Print a line for each way, as it is done."""
    count, names = int(arguments[0]) if arguments else COUNT, arguments[1:]
    unknown = [name for name in names if name not in map(str, WAYS)]
    if unknown:
        sys.stderr.write(f"unknown ways {unknown}, have {[str(way) for way in WAYS]}\n")
        return 1
    with tempfile.TemporaryDirectory() as folder, Nurseries(Path(folder)) as nurseries:
        print(f"{'way':20} {'named':>8} {'innocent':>9}")
        for way in WAYS:
            if not names or str(way) in names:
                done = tally(way, count, nurseries)
                innocent = f"{done.innocent}/{done.healthy}" if done.healthy else "-"
                print(f"{way!s:20} {done.right:>5}/{done.slow} {innocent:>9}", flush=True)
                for wrong in done.wrong:
                    print(f"    {wrong}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
