"""The order in which tests are tried against a mutant, and how many of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MUTANT_CPU_SECONDS = 10.0
"""CPU seconds of the tests of one mutant, measured without it."""

MOST_TESTS = 400


@dataclass(frozen=True, slots=True)
class Reach:
    """One test as it ran without a mutant."""

    seconds: float
    cpu_seconds: float
    passed: bool
    functions: tuple[str, ...]


def quickest(tests: Mapping[str, Reach], imports: Mapping[str, int]) -> list[str]:
    """Return tests in the order in which they are tried: quick ones that reach little first.

    Args:
        tests: those that may notice a mutant.
        imports: how many modules of the project each test file imports: the fewer they are, the
            more likely they are what its tests are about.
    """

    def order(name: str) -> float:
        width = len(tests[name].functions) + imports.get(name.partition("::")[0], 0)
        return _cost(tests[name]) * (10 + width)

    left, chosen = MUTANT_CPU_SECONDS, []
    for name in sorted(tests, key=order)[:MOST_TESTS]:
        left -= _cost(tests[name])
        if left < 0:
            break
        chosen.append(name)
    return chosen


def _cost(reach: Reach) -> float:
    return reach.cpu_seconds + 0.01  # of pytest itself
