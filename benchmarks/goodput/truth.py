"""What was done to a job, as measured by its own ranks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

Event = Mapping[str, Any]
BEFORE = ("data", "straggler", "hang", "checkpoint")
"""Causes whose seconds are measured where they arise."""


@dataclass(frozen=True, slots=True)
class Truth:
    """How a job spent its time, in seconds of all its ranks together.

    Args:
        lost: by part.
        productive: kept steps, each as long as an undisturbed one.
        allocated: from the start of the first process to the end of the last.
        usual: an undisturbed step.
    """

    lost: Mapping[str, float]
    productive: float
    allocated: float
    usual: float


def truth(journal: Path, ranks: int) -> Truth:
    """Return the truth from the journals of all ranks."""
    attempts: dict[int, dict[int, list[Event]]] = defaultdict(dict)
    for path in journal.glob("*-*"):
        rank, attempt = map(int, path.name.split("-"))
        lines = path.read_text().splitlines()
        attempts[attempt][rank] = [json.loads(line) for line in lines]
    runs = [attempts[number] for number in sorted(attempts)]
    done = [[one for one in run[0] if one.get("event") == "step"] for run in runs]
    injected = _injected(runs)
    steps = [one for run in done for one in run[1:]]
    usual = _usual(steps, injected)
    lost = {
        cause: ranks * sum(seconds for (what, _, _), seconds in injected.items() if what == cause)
        for cause in BEFORE
    }
    unprobed = [1] if len(runs) > 2 else []  # the second attempt of three has no probe
    seen = {one["step"] for number, run in enumerate(done) if number not in unprobed for one in run}
    begins = [min(_first(events, "process") for events in run.values()) for run in runs]
    ends = [max(_last(events) for events in run.values()) for run in runs]
    lost |= _between(done, begins, ends, usual, ranks, unprobed)
    return Truth(
        {part: seconds for part, seconds in lost.items() if seconds > 0},
        ranks * len(seen) * usual,
        ranks * (ends[-1] - begins[0]),
        usual,
    )


def _injected(
    runs: Sequence[Mapping[int, Sequence[Event]]],
) -> Mapping[tuple[str, int, int], float]:
    """Return seconds by cause, attempt and step, of the rank that had most of it."""
    found: dict[tuple[str, int, int], float] = defaultdict(float)
    for attempt, run in enumerate(runs):
        for events in run.values():
            for one in events:
                if "cause" in one:
                    key = one["cause"], attempt, one["step"]
                    found[key] = max(found[key], one["seconds"])
    return found


def _usual(steps: Sequence[Event], injected: Mapping[tuple[str, int, int], float]) -> float:
    """Return an undisturbed step; if all are disturbed, what remains of them."""
    clean: list[float] = [
        one["end"] - one["begin"] for one in steps if not _faulty(injected, one["step"])
    ]
    if clean:
        return median(clean)
    more: dict[int, float] = defaultdict(float)
    for (_, _, step), seconds in injected.items():
        more[step] += seconds
    rest: list[float] = [one["end"] - one["begin"] - more[one["step"]] for one in steps]
    return median(rest)


def _faulty(injected: Mapping[tuple[str, int, int], float], step: int) -> bool:
    """A save is between two steps of the script; a loader is queried at most one step ahead."""
    return any(abs(of - step) <= 1 for _, _, of in injected)


def _between(
    done: Sequence[Sequence[Event]],
    begins: Sequence[float],
    ends: Sequence[float],
    usual: float,
    ranks: int,
    unprobed: Sequence[int],
) -> dict[str, float]:
    lost = {
        "startup": done[0][0]["end"] - usual - begins[0],
        "idle": ends[-1] - done[-1][-1]["end"],
        "restart": 0.0,
        "replayed": 0.0,
        "unobserved": 0.0,
    }
    for number in range(1, len(done)):
        if number in unprobed:
            continue
        since = done[number - 1][-1]["end"]
        if number - 1 in unprobed:
            lost["unobserved"] += begins[number] - done[number - 2][-1]["end"]
            since = begins[number]
        lost["restart"] += done[number][0]["end"] - usual - since
        again = len(done[number]) - _new(done, number, unprobed)
        lost["replayed"] += (again - 1) * usual  # the first of them ends the restart
    return {part: ranks * seconds for part, seconds in lost.items()}


def _new(done: Sequence[Sequence[Event]], number: int, without: Sequence[int]) -> int:
    """Return how many steps of an attempt no earlier one had made."""
    before = {
        one["step"]
        for place, run in enumerate(done[:number])
        if place not in without
        for one in run
    }
    return len({one["step"] for one in done[number]} - before)


def _first(events: Sequence[Event], kind: str) -> float:
    return float(next(one["at"] for one in events if one.get("event") == kind))


def _last(events: Sequence[Event]) -> float:
    return max(float(one.get("at", one.get("end", 0.0))) for one in events)
