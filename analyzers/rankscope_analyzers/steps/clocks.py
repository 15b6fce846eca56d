"""Clock offsets between a job's nodes, from step ends that all ranks share.

A step of a synchronous job ends on all ranks at the same moment, whichever rank was late, and each
node's clock dates that moment, unless hosts run ahead of their devices. A node's offset is what its
ranks report minus the median of all nodes. This needs no time protocol and shows errors that one
hides. Only the job's nodes are compared, so an error that all of them share cannot be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.numeric.row_statistics import row_median
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.steps.records import OTHER, SAMPLED, TIMING, end_on_devices

MINIMUM_STEPS = 8
"""Common step ends that an offset is computed from; fewer could be shifted by one late return."""

NEWEST_STEPS = 256
"""Steps that are considered: with drift, older ones have a different offset."""

SIGNIFICANCE = 3.0
"""Standard errors above which an offset is the clock's and not caused by scheduling."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far a node's clock is ahead of the job's median clock.

    Args:
        seconds: negative if it is behind.
        error_seconds: standard error of `seconds`.
        drift: seconds gained per second.
        at_unix_seconds: the time that `seconds` holds for.
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
        """Return the offset at a time nearby."""
        return self.seconds + self.drift * (unix_seconds - self.at_unix_seconds)


def hosts_run_ahead(records: pd.DataFrame) -> bool:
    """Return True if compute is a device's, by which hosts end steps as early as they like.

    Args:
        records: of one job, in the columns of the trace contract.
    """
    timings = records[TIMING].unique() if TIMING in records.columns else ()
    if SAMPLED in timings:
        return True
    if not {OTHER, "compute_seconds"} <= set(records.columns) or "wall" not in timings:
        return False
    other = records.loc[records["compute_seconds"].notna(), OTHER]
    return end_on_devices(other.to_numpy(np.float64))


def offsets(frame: StepFrame) -> tuple[ClockOffset, ...]:
    """Estimate the offset of every node of a job; none with fewer than two nodes to compare."""
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
    """Return (S, nodes) medians over the ranks of each node, all nodes of one size at once."""
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
    # A drift smaller than its own noise would be extrapolated far from where it was seen.
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
