"""Jobs that nobody chose: drawn from a seed, alternately with and without a fault, and short."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.running_jobs.cases import ENDED, NOBODY, Case

LOOPS = ("ddp", "plain", "normalized", "accumulation", "sharded", "by_hand", "local")
"""Loops in which all ranks wait for the slowest one, and that run with any number of ranks."""

FED = ("ddp", "normalized", "accumulation", "sharded", "by_hand")
"""Those of them that take their batches from a loader."""

SECONDS = 24.0
"""Seconds that a job runs before it is diagnosed; faults that take longer to see have more."""

Accepted = Sequence[tuple[str | None, tuple[int, ...]]]


def cases(seed: int, count: int) -> Iterator[Case]:
    """Yield jobs, every other one with a fault; the same for the same seed."""
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")  # noqa: S311 - no secret
        settings = {
            "compute": round(chance.uniform(0.02, 0.12), 3),
            "load": round(chance.uniform(0.001, 0.006), 4),
            "jitter": chance.choice((0.0, 0.0, 0.1, 0.3)),
        }
        ranks = chance.choice((2, 3, 4, 4))
        case = Case(f"d{seed}-{number}", chance.choice(LOOPS), (NOBODY,), {}, settings, (), ranks)
        case = replace(case, seconds=SECONDS)
        yield (_healthy if number % 2 else _faulty)(chance, case)


def _healthy(chance: random.Random, case: Case) -> Case:
    more = chance.choice(
        (
            {},
            {"checkpoint_every": chance.randint(15, 60), "checkpoint": chance.uniform(0.2, 0.8)},
            {"evaluate_every": chance.randint(30, 80), "evaluate": chance.uniform(0.4, 1.0)},
            {"jitter": 0.6},
            {"busy": True, "compute": 0.02},
            {"late": 4},
        )
    )
    return replace(case, settings={**case.settings, **more})


def _faulty(chance: random.Random, case: Case) -> Case:
    return chance.choices(FAULTS, WEIGHTS)[0](chance, case)


def _with_fault(case: Case, accepted: Accepted, **what: Any) -> Case:
    return replace(case, expected=accepted, fault=what)


def _slow(chance: random.Random, case: Case) -> Case:
    """Slow down one rank's compute, or that of two of four."""
    several = 2 if case.ranks == 4 and chance.random() < 0.4 else 1
    ranks = sorted(chance.sample(range(case.ranks), several))
    more = case.settings["compute"] * chance.uniform(0.35, 1.5)
    accepted = (("gpu_compute", tuple(ranks)),)
    return _with_fault(case, accepted, what="compute", ranks=ranks, amount=round(more, 4))


def _input(chance: random.Random, case: Case) -> Case:
    rank = chance.randrange(case.ranks)
    more = round(chance.uniform(0.02, 0.08), 4)
    case = replace(case, loop=chance.choice(FED))
    accepted = (("data_loader", (rank,)),)
    return _with_fault(case, accepted, what="input", ranks=[rank], amount=more)


def _stalls(chance: random.Random, case: Case) -> Case:
    """Pause a rank every so many steps; not a first one, for which it would be a checkpoint."""
    rank = chance.randrange(1, case.ranks)
    settings = {**case.settings, "compute": 0.03}
    every, pause = chance.randint(15, 40), round(chance.uniform(0.3, 0.7), 2)
    case = replace(case, settings=settings, seconds=SECONDS + 10)
    accepted = (("host_transient", (rank,)),)
    return _with_fault(case, accepted, what="stall", ranks=[rank], amount=pause, every=every)


def _frozen(chance: random.Random, case: Case) -> Case:
    """Stop a rank: if it stopped in a collective, no record would show which one it was."""
    rank = chance.randrange(case.ranks)
    accepted = (("host_transient", (rank,)), ("host_transient", ()))
    outside = ("freeze", rank, 12, round(chance.uniform(6.0, 9.0), 1))
    return replace(case, expected=accepted, outside=outside, seconds=SECONDS + 4)


def _gone(chance: random.Random, case: Case) -> Case:
    rank, after = chance.randrange(case.ranks), chance.randint(8, 12)
    accepted = ((ENDED, (rank,)),)
    verb = chance.choice(("raise", "kill", "stop"))
    if verb == "raise":
        return _with_fault(case, accepted, what="raise", ranks=[rank], amount=1, begin=after)
    return replace(case, expected=accepted, outside=(verb, rank, after), seconds=SECONDS + 6)


def _checkpoints(chance: random.Random, case: Case) -> Case:
    writes = {"checkpoint_every": chance.randint(12, 25), "checkpoint": 0.3, "compute": 0.03}
    settings = {**case.settings, **writes, "barrier": chance.random() < 0.5}
    case = replace(case, loop="ddp", settings=settings, seconds=50)
    accepted = (("storage_checkpoint", (0,)), ("storage_checkpoint", ()))
    return _with_fault(case, accepted, what="storage", amount=4, begin=22)


def _input_of_all(chance: random.Random, case: Case) -> Case:
    case = replace(case, loop=chance.choice(FED), seconds=62)
    more = round(chance.uniform(0.03, 0.06), 3)
    return _with_fault(case, (("storage_checkpoint", ()),), what="input", amount=more, begin=20)


FAULTS: Sequence[Callable[[random.Random, Case], Case]] = (
    _slow, _input, _stalls, _frozen, _gone, _checkpoints, _input_of_all,
)  # fmt: skip
WEIGHTS = (12, 6, 6, 4, 6, 3, 3)
