"""`make mutants`: changes constants one at a time, and reports which changes no test notices."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.mutants import dependence, session
from benchmarks.mutants.choice import test_files_for
from benchmarks.mutants.population import Mutant, population

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str]) -> int:
    """Draw mutants, run the tests that may notice them, and print a report."""
    options = _parser().parse_args(arguments)
    known = [one for one in population(ROOT) if one.path.startswith(options.below)]
    drawn = random.Random(options.seed).sample(known, min(options.count, len(known)))  # noqa: S311
    files = test_files_for(ROOT, dependence.read(ROOT), drawn)
    sys.stderr.write(f"{len(drawn)} of {len(known)} numbers, {len(files)} test files\n")
    sys.stdout.write(f"{report(run(drawn, files))}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="mutants to draw (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: 1)")
    parser.add_argument(
        "--below", default="", metavar="PATH", help="draw only from modules whose path begins so"
    )
    return parser


def run(mutants: Sequence[Mutant], files: Sequence[Path]) -> list[Mapping[str, Any]]:
    """Return the result of each mutant when these test files ran."""
    with tempfile.TemporaryDirectory() as folder:
        given, results = Path(folder) / "mutants", Path(folder) / "results"
        given.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in mutants))
        results.touch()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "benchmarks.mutants.session", *map(str, files)]
        variables = {session.MUTANTS: str(given), session.RESULTS: str(results)}
        environment = {**os.environ, **variables}
        subprocess.run(command, env=environment, cwd=ROOT, stdout=sys.stderr, check=False)
        return [json.loads(line) for line in results.read_text().splitlines()]


def report(results: Sequence[Mapping[str, Any]]) -> str:
    """Return how many mutants were noticed, and those that were not."""
    counts = Counter(one["outcome"] for one in results)
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    unnoticed = [one for one in results if one["outcome"] != "killed"]
    lines = (f"  {one['outcome']}: {one['mutant']} ({one['tests']} tests)" for one in unnoticed)
    costs = [one for one in results if one["cost"]]
    chosen = [one for one in results if not one["assigned"] and not one["cost"]]
    by_class = [f"  {_killed(chosen)} in constants that this project chose killed"]
    if costs:
        by_class.append(f"  {_killed(costs)} in constants that only trade cost killed")
    return "\n".join((f"{len(results)} mutants: {summary}", *by_class, *lines))


def _killed(results: Sequence[Mapping[str, Any]]) -> str:
    killed = [one["outcome"] == "killed" for one in results]
    return f"{sum(killed)} of the {len(killed)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
