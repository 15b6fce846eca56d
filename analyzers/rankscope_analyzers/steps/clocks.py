"""Clock offsets between a job's nodes, from step ends that all ranks share.

A step of a synchronous job ends on all ranks at one moment, whichever rank was late in it: each
node's clock says when. What its ranks say, less what all nodes say in the middle, is the node's
offset. It needs no time protocol and sees what one hides. Only the job's nodes are compared: that
all of them are wrong together cannot be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.numeric.row_statistics import row_median
from rankscope_analyzers.steps.frames import StepFrame

MINIMUM_STEPS = 8
"""Common ends of steps that an offset is taken from; one late return would shift fewer."""

NEWEST_STEPS = 256
"""Steps that are looked at: drift makes older ones another offset's."""

SIGNIFICANCE = 3.0
"""Standard errors from which on an offset is a node's clock and no scheduler's whim."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """By how much a node's clock is ahead of the job's middle one.

    Args:
        seconds: negative when it is behind.
        error_seconds: standard error of that.
        drift: seconds by which it gains in a second.
        at_unix_seconds: when it was so.
    """

    node: str
    seconds: float
    error_seconds: float
    drift: float
    at_unix_seconds: float

    @property
    def significant(self) -> bool:
        """Return True if it is more than chance."""
        return abs(self.seconds) > SIGNIFICANCE * self.error_seconds

    def at(self, unix_seconds: Floats) -> Floats:
        """Return the offset at times nearby."""
        return self.seconds + self.drift * (unix_seconds - self.at_unix_seconds)


def offsets(frame: StepFrame) -> tuple[ClockOffset, ...]:
    """Estimate the offset of every node of a job; none where there are not two nodes to compare."""
    nodes, node_of = np.unique(np.array(frame.nodes), return_inverse=True)
    rows = np.flatnonzero(frame.usable)[-NEWEST_STEPS:]
    if len(nodes) < 2 or len(rows) < MINIMUM_STEPS:
        return ()
    of_node = _medians(frame.starts[rows] + frame.step[rows], node_of)
    middle = row_median(of_node)
    found = []
    for column, node in enumerate(nodes):
        ahead = of_node[:, column] - middle
        known = np.isfinite(ahead)
        if known.sum() >= MINIMUM_STEPS:
            found.append(_offset(str(node), middle[known], ahead[known]))
    return tuple(found)


def _medians(ends: Floats, node_of: Integers) -> Floats:
    """Return (S, nodes) medians over the ranks of each node; all nodes of one size at once."""
    sizes = np.bincount(node_of)
    columns = np.argsort(node_of, kind="stable")
    medians = np.empty((len(ends), len(sizes)))
    for size in np.unique(sizes):
        alike = sizes == size
        chosen = ends[:, columns[np.repeat(alike, sizes)]]
        medians[:, alike] = row_median(chosen.reshape(-1, size)).reshape(len(ends), -1)
    return medians


def _offset(node: str, times: Floats, ahead: Floats) -> ClockOffset:
    """Fit a line robustly: the slope between the medians of both halves, through the median."""
    half = len(times) // 2
    early, late = slice(0, half), slice(len(times) - half, None)
    apart = float(np.median(times[late]) - np.median(times[early]))
    drift = float(np.median(ahead[late]) - np.median(ahead[early])) / apart if apart > 0 else 0.0
    at = float(np.median(times))
    left = ahead - drift * (times - at)
    seconds = float(np.median(left))
    spread = NORMAL_CONSISTENCY * float(np.median(np.abs(left - seconds)))
    # A drift smaller than its own noise would be carried far from where it was seen.
    noise = 2 * spread / np.sqrt(half)
    if abs(drift) * apart < SIGNIFICANCE * noise:
        drift = 0.0
    return ClockOffset(node, seconds, spread / float(np.sqrt(len(times))), drift, at)


def per_rank(frame: StepFrame, found: tuple[ClockOffset, ...]) -> dict[int, ClockOffset]:
    """Return the offsets that are more than chance, by rank."""
    by_node = {offset.node: offset for offset in found if offset.significant}
    ranks: Integers = frame.ranks
    return {
        int(rank): by_node[node]
        for rank, node in zip(ranks, frame.nodes, strict=True)
        if node in by_node
    }
