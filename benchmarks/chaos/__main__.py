"""`make chaos`: runs the matrix, or shows that each invariant can be violated."""

from __future__ import annotations

import argparse
import sys

from benchmarks.chaos import run
from benchmarks.chaos.faults import FAULTS
from benchmarks.chaos.planted import PLANTS
from benchmarks.processes import end_on_terminate

PLANTED_SETTLE_SECONDS = 25.0


def main() -> int:
    """Run the selected faults; return 1 if an invariant is violated, or that of a plant is not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the order and of what is drawn")
    parser.add_argument("--fault", action="append", default=[], choices=sorted(FAULTS))
    parser.add_argument("--planted", action="append", default=[], choices=sorted(PLANTS))
    options = parser.parse_args()
    end_on_terminate()
    if options.planted:
        return max(_planted(name) for name in options.planted)
    result = run.measure(options.seed, options.fault, note=_print)
    _print(run.report(result).splitlines()[-1])
    return int(any(one.violations for one in result.rounds) or any(result.long))


def _planted(name: str) -> int:
    """Run the chain with a planted fault; return 0 if its invariant is violated."""
    result = run.measure(1, ["nothing"], [name], PLANTED_SETTLE_SECONDS)
    found = result.rounds[-1].violations
    expected = PLANTS[name].invariant
    _print(f"{name:20}{expected:30}{'violated' if expected in found else 'NOT SEEN'}: {found}")
    return int(expected not in found)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
