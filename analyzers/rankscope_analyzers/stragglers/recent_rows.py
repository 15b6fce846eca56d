"""The newest rows of an array in bounded memory."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats

SLACK = 2
"""Half as many rows again are allocated, so that rows are moved up only once in that many
pushes."""


class RecentRows:
    """The newest rows of one array; older ones are forgotten.

    Args:
        keep: rows that stay available.
        shape: shape of one row.
    """

    __slots__ = ("_keep", "_rows", "_stop")

    def __init__(self, keep: int, shape: tuple[int, ...]) -> None:
        self._keep = keep
        self._rows = np.zeros((keep + max(keep // SLACK, 1), *shape))
        self._stop = 0

    def extend(self, rows: Floats) -> None:
        """Add rows, (n, ...), the newest one last."""
        while len(rows):
            if self._stop == len(self._rows):
                kept = self._keep - 1
                self._rows[:kept] = self._rows[self._stop - kept : self._stop].copy()
                self._stop = kept
            fitting = rows[: len(self._rows) - self._stop]
            self._rows[self._stop : self._stop + len(fitting)] = fitting
            self._stop += len(fitting)
            rows = rows[len(fitting) :]

    def last(self, count: int) -> Floats:
        """Return a view of the newest rows, of all if there are fewer."""
        return self._rows[max(0, self._stop - min(count, self._keep)) : self._stop]

    def __len__(self) -> int:
        """Return how many rows are available."""
        return min(self._stop, self._keep)
