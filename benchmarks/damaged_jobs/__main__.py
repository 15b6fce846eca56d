"""Count jobs that cannot be judged because something raises, of which there may be none.

python -m benchmarks.damaged_jobs SEED COUNT

COUNT small jobs are drawn from a seed, simulated, damaged by one to three functions of `damages.py`
and judged by every path of `ways.py`. It exits with 1 if anything raised.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.damaged_jobs.drawn import jobs
from benchmarks.damaged_jobs.ways import BLIND, Result, results


def report(made: Iterator[tuple[str, Sequence[str], str, Result]]) -> tuple[str, int]:
    """Return a table of the results by path, what raised, and how often."""
    answers: Counter[tuple[str, str]] = Counter()
    problems: list[str] = []
    for name, damages, way, result in made:
        answer = "raised" if result.problem else _word(result.reported)
        answers[way, answer] += 1
        if result.problem:
            problems.append(f"- {name}, {way}, {', '.join(damages)}:\n{result.problem}")
    ways = list(dict.fromkeys(way for way, _ in answers))
    words = ("no verdict possible", "nobody slow", "somebody or something slow", "raised")
    lines = ["| way | " + " | ".join(words) + " |", "|---" * 5 + "|"]
    lines += [
        f"| {way} | {' | '.join(str(answers[way, word]) for word in words)} |" for way in ways
    ]
    return "\n".join([*lines, "", *problems]), len(problems)


def _word(reported: str | None) -> str:
    if reported == BLIND:
        return "no verdict possible"
    return "nobody slow" if reported is None else "somebody or something slow"


def _judged(seed: int, count: int) -> Iterator[tuple[str, Sequence[str], str, Result]]:
    for job in jobs(seed, count):
        for way, result in results(job):
            yield job.name, job.damages, way, result


def main(arguments: Sequence[str]) -> int:
    """Run what the command line selects."""
    if len(arguments) != 2:
        sys.stderr.write(__doc__ or "")
        return 2
    text, raised = report(_judged(*map(int, arguments)))
    sys.stdout.write(f"{text}\n")
    return 1 if raised else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
