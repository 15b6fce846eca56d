"""What a run keeps of its steps, as one row of numbers for each: averaged and passed on at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.stragglers.quantities import Quantities

ALWAYS = (
    "duration", "relative", "replica", "stage", "data", "data_median", "transfer", "residual",
    "compute", "input", "sync",
)  # fmt: skip
"""Quantities that all jobs have."""

NOT_ALWAYS = ("cpu_wait", "work", "exit_lateness", "weights", "loader")
"""Quantities that not all jobs have."""


@dataclass(frozen=True, slots=True)
class KeptSteps:
    """Some steps.

    Args:
        shapes: of each quantity in one step, in the order of the numbers.
        values: (n, F) the numbers of each step.
    """

    shapes: Mapping[str, tuple[int, ...]]
    values: Floats

    def __len__(self) -> int:
        """Return how many steps there are."""
        return len(self.values)

    def part(self, first: int, last: int) -> KeptSteps:
        """Return the steps from one on, up to another one."""
        return KeptSteps(self.shapes, self.values[first:last])

    def quantities(self) -> dict[str, Floats]:
        """Return (n, ...) each quantity, as views."""
        found, first = {}, 0
        for name, shape in self.shapes.items():
            last = first + math.prod(shape)
            found[name] = self.values[:, first:last].reshape(len(self.values), *shape)
            first = last
        return found


def kept_steps(now: Quantities, rows: Integers) -> KeptSteps:
    """Return what is kept of some steps, rows of `now`."""
    known = {name: getattr(now, name) for name in (*ALWAYS, *NOT_ALWAYS)}
    return flattened({name: of[rows] for name, of in known.items() if of is not None})


def flattened(quantities: Mapping[str, Floats]) -> KeptSteps:
    """Return quantities, (n, ...) each, as one row for each step."""
    shapes = {name: of.shape[1:] for name, of in quantities.items()}
    rows = [of.reshape(len(of), -1) for of in quantities.values()]
    return KeptSteps(shapes, np.concatenate(rows, axis=1))
