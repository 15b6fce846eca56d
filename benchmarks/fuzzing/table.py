"""The table of all targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType

from benchmarks.fuzzing import answers, logs, peers, rings, stored
from benchmarks.fuzzing.target import Target

PARTS: Sequence[ModuleType] = (rings, logs, peers, answers, stored)

TARGETS: Mapping[str, Target] = {target.name: target for part in PARTS for target in part.TARGETS}


def part_of(target: Target) -> str:
    """Return the name of the module that defines a target."""
    return next(part.__name__ for part in PARTS if target in part.TARGETS).rpartition(".")[2]
