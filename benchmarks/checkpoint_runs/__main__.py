"""Run real jobs that save, fail and diverge, and compare what is reported of them with their log.

python -m benchmarks.checkpoint_runs [--slow-runs N]

Three things are tested: whether every event is counted once and every number matches the run's own
within a per cent; whether slow checkpoints of a running job lead to RankscopeSlowStorage (needs
promtool); and N times, 10 by default, whether a rank three times slower than its peers is named
while rank 0 writes a checkpoint of 2 s every 50 steps. With one such run it takes about five
minutes, with ten about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.checkpoint_runs.tried import SLOW_RUNS, measure, report
from benchmarks.processes import end_on_terminate


def main(words: Sequence[str]) -> int:
    """Run all; return 1 if any result differs from what is expected."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint_runs")
    parser.add_argument("--slow-runs", type=int, default=SLOW_RUNS, metavar="N")
    result = measure(parser.parse_args(words).slow_runs)
    sys.stdout.write(f"{report(result)}\n")
    return 0 if result.passed else 1


if __name__ == "__main__":
    end_on_terminate()
    sys.exit(main(sys.argv[1:]))
