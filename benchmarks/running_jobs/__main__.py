"""Run real jobs on gloo, one after the other, and print what a user sees of each.

python -m benchmarks.running_jobs [COUNT] [--only NAME ...] [--record DIR]
python -m benchmarks.running_jobs COUNT --drawn SEED [--record DIR]

COUNT is the number of cases, alternately faulty and healthy; all by default, which takes about an
hour and a half. With --drawn, jobs are drawn from a seed instead (`drawn.py`), each some half a
minute long. --record saves the step records of each (Parquet, a file for each job) and the expected
answers, to replay them without running jobs. Network namespaces, and a cgroup with a CPU quota,
need root; cases whose requirements are missing are skipped, and reported as such.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.processes import end_on_terminate
from benchmarks.running_jobs import drawn
from benchmarks.running_jobs.cases import FAULTY, HEALTHY, NOBODY, Case
from benchmarks.running_jobs.launch import ForkServer
from benchmarks.running_jobs.run import Outcome, right, run

REFUSED = (PermissionError, FileNotFoundError, subprocess.CalledProcessError)
"""What is raised without network namespaces or a CPU controller."""


def alternating() -> Iterable[Case]:
    """Yield faulty and healthy cases alternately."""
    for pair in itertools.zip_longest(FAULTY, HEALTHY):
        yield from (case for case in pair if case is not None)


def shown(answer: tuple[str | None, tuple[int, ...]]) -> str:
    """Write a class and ranks."""
    kind, ranks = answer
    return " ".join(filter(None, [kind or "nobody", ",".join(map(str, ranks))]))


def line(case: Case, outcome: Outcome) -> str:
    """Write a row of the table."""
    verdict = "right" if right(case, outcome.reported) else "WRONG"
    expected = " or ".join(map(shown, case.expected[:2]))
    words = outcome.summary.splitlines()[-1]
    return f"| {case.name} | {expected} | {shown(outcome.reported)} | {verdict} | {words} |"


def record(folder: Path, case: Case, outcome: Outcome) -> None:
    """Save what was seen of a job and what should be reported of it."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome.rows.to_parquet(folder / f"{case.name}.parquet", index=False)
    answers = folder / "answers.json"
    known = json.loads(answers.read_text()) if answers.exists() else {}
    known[case.name] = {
        "world_size": case.ranks,
        "expected": [{"class": kind, "ranks": list(ranks)} for kind, ranks in case.expected],
        "said": {"class": outcome.reported[0], "ranks": list(outcome.reported[1])},
    }
    answers.write_text(json.dumps(known, indent=1))


def main(arguments: Sequence[str]) -> int:
    """Run cases and print a row for each when it is done, then how many were right."""
    parser = argparse.ArgumentParser("benchmarks.running_jobs", description=__doc__)
    parser.add_argument("count", nargs="?", type=int)
    parser.add_argument("--only", nargs="+", default=())
    parser.add_argument("--record", type=Path)
    parser.add_argument("--drawn", type=int, metavar="SEED")
    options = parser.parse_args(arguments)
    chosen = [case for case in alternating() if not options.only or case.name in options.only]
    if options.drawn is not None:
        chosen = list(drawn.cases(options.drawn, options.count or len(chosen)))
    counts = {"healthy": [0, 0], "faulty": [0, 0]}
    print("| job | expected | got | | |\n|---|---|---|---|---|")
    with ForkServer() as server:
        for case in chosen[: options.count]:
            try:
                outcome = run(case, server)
            except REFUSED as error:
                print(f"| {case.name} | | | skipped | {error} |", flush=True)
                continue
            print(line(case, outcome), flush=True)
            if options.record:
                record(options.record, case, outcome)
            tally = counts["healthy" if tuple(case.expected) == (NOBODY,) else "faulty"]
            tally[0] += right(case, outcome.reported)
            tally[1] += 1
    for kind, (good, of) in counts.items():
        print(f"{kind}: {good} of {of} right")
    return 0


if __name__ == "__main__":
    end_on_terminate()
    sys.exit(main(sys.argv[1:]))
