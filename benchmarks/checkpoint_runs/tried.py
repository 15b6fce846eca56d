"""The tests on running jobs, and the table of their results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.checkpoint_runs.alarm import exported_by_watch, fires
from benchmarks.checkpoint_runs.compared import Row, rows
from benchmarks.checkpoint_runs.run import ground, two_attempts
from benchmarks.running_jobs.cases import SAVES, Case
from benchmarks.running_jobs.launch import ForkServer
from benchmarks.running_jobs.run import Answer, run

SLOW_RUNS = 10
ALERT, FINDING = "RankscopeSlowStorage", "storage_checkpoint"

SLOW = Case(
    "saves-and-slow",
    "ddp",
    (("gpu_compute", (1,)),),
    {"what": "compute", "ranks": [1], "amount": 0.04},
    {**SAVES, "compute": 0.02},
    seconds=60,
)
"""Rank 1 computes 60 ms a step where its peers compute 20, while rank 0 saves."""


@dataclass(frozen=True, slots=True)
class Result:
    """The results.

    Args:
        events: values of the agent's page and the job's own.
        named: True if the watch reports that checkpoints became slow.
        alerted: True if the rules raise an alert for it.
        answers: who was named in each run with a slow rank.
    """

    events: Sequence[Row]
    named: bool
    alerted: bool
    answers: Sequence[Answer]

    @property
    def passed(self) -> bool:
        """Return True if all results are as expected."""
        each = (answer == SLOW.expected[0] for answer in self.answers)
        return all((*(row.right for row in self.events), self.named, self.alerted, *each))


def measure(slow_runs: int = SLOW_RUNS) -> Result:
    """Run all jobs, one after the other; print a line to standard error for each."""
    with ground() as place:
        events = list(rows(two_attempts(place), place.folder))
    _tell(_events(events))
    with ground() as place:
        page = exported_by_watch(place, FINDING)
    named, alerted = f'"{FINDING}"' in page, fires(page, ALERT)
    _tell(_storage(named, alerted=alerted))
    return Result(events, named, alerted, list(_answers(slow_runs)))


def _answers(count: int) -> Iterator[Answer]:
    with ForkServer() as server:
        for number in range(1, count + 1):
            answer = run(SLOW, server).reported
            _tell(f"run {number} with a slow rank: {answer}")
            yield answer


def _tell(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def _events(events: Sequence[Row]) -> str:
    return f"{sum(row.right for row in events)} of {len(events)} values right"


def _storage(named: bool, *, alerted: bool) -> str:
    return f"slow checkpoints: named {named}, {ALERT} fires {alerted}"


def report(result: Result) -> str:
    """Return the table, and a sentence on each of the other two."""
    lines = ["| value | agent | run | |", "|---|---|---|---|"]
    for row in result.events:
        verdict = "as it was" if row.right else "WRONG"
        lines.append(f"| {row.name} | {row.exported} | {row.own} | {verdict} |")
    right = sum(answer == SLOW.expected[0] for answer in result.answers)
    lines += [_events(result.events), _storage(result.named, alerted=result.alerted)]
    lines.append(f"the slow rank named in {right} of {len(result.answers)} runs")
    others = [str(answer) for answer in result.answers if answer != SLOW.expected[0]]
    return "\n".join([*lines, *others])
