"""How much longer the exchange of a group seems to take since some of its members are silent.

Its time is that of the last arriver, which does not wait. If that one falls silent, because its
node fails, for example, the waits of the others for it look like a slower exchange: what the time
grew by at that moment is no evidence against the links or the fabric. What it grows by later is.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.medians import median

SETTLED_ROWS = 8
"""Rows without a rank after which it counts as silent, and that the time is compared over: fewer
than the exchange has to be slow for before it is reported (`slow_transfer.STEADY_STEPS`)."""

NEVER = -1


class SilentMembers:
    """The ranks of a run that fell silent, and what that changed; bounded by its size."""

    __slots__ = ("_absent", "rise")

    def __init__(self, sizes: tuple[int, int, int]) -> None:
        self._absent = np.full(sizes, NEVER, dtype=np.int64)  # rows since a rank's last one
        self.rise = np.zeros((sizes[0], sizes[2]))

    def update(self, known: Booleans, transfer: Floats) -> None:
        """Take note of a row.

        Args:
            known: (P, D, T) ranks whose times are in it.
            transfer: (n, P, T) time of each group's exchange in the newest rows, this one last.
        """
        before = self._absent
        self._absent = np.where(known, 0, np.where(before == NEVER, NEVER, before + 1))
        fallen = (self._absent == SETTLED_ROWS).any(axis=1)
        if fallen.any() and len(transfer) >= 2 * SETTLED_ROWS:
            newest = transfer[-2 * SETTLED_ROWS :]
            grown = median(newest[SETTLED_ROWS:], 0)[0] - median(newest[:SETTLED_ROWS], 0)[0]
            self.rise = self.rise + np.where(fallen & (grown > 0), grown, 0.0)
        if self.rise.any():
            self.rise = np.where((self._absent >= SETTLED_ROWS).any(axis=1), self.rise, 0.0)
