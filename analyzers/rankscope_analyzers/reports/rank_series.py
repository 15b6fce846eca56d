"""One measurement of a rank over time, with the median of its peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rankscope_analyzers.fusion.job_report import Incident
from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.row_statistics import row_median
from rankscope_analyzers.reports.heat_map import bin_edges
from rankscope_analyzers.steps.frames import StepFrame

COLUMNS: Mapping[str, str] = {
    "compute_seconds": "compute",
    "data_seconds": "data",
    "sync_seconds": "sync",
    "step_seconds": "step",
    "cpu_wait_seconds": "cpu_wait",
}
"""Fields of a frame by the column in evidence."""


@dataclass(frozen=True, slots=True)
class Series:
    """Means (B,) over bins of steps, in seconds; NaN if nothing was measured."""

    rank: int
    column: str
    own: Floats
    peers: Floats


def of_culprit(frame: StepFrame, incident: Incident, most_bins: int) -> Series | None:
    """Return the series that singles out an incident's worst rank, None without a known rank."""
    known = [rank for rank in incident.where.ranks if rank in frame.ranks]
    if not known:
        return None
    column = next(
        (
            evidence.source
            for finding in (incident.cause, *incident.findings)
            for evidence in finding.evidence
            if evidence.source in COLUMNS
        ),
        "compute_seconds",
    )
    return against_peers(frame, known[0], column, most_bins, set(incident.where.ranks))


def against_peers(
    frame: StepFrame, rank: int, column: str, most_bins: int, suspects: set[int]
) -> Series:
    """Return a rank's values and those of the ranks of its stage that are not suspected.

    Args:
        frame: the job.
        rank: one of its ranks.
        column: a key of COLUMNS.
        most_bins: maximum number of bins of consecutive steps.
        suspects: ranks that are no reference for others.
    """
    values: Floats = getattr(frame, COLUMNS[column])
    location = int(np.flatnonzero(frame.ranks == rank)[0])
    edges = bin_edges(len(frame.steps), most_bins)
    peers = row_median(values[:, _peers(frame, location, suspects)])
    return Series(rank, column, _means(values[:, location], edges), _means(peers, edges))


def _peers(frame: StepFrame, location: int, suspects: set[int]) -> Booleans:
    """Return (R,) the peers of a column: those of its stage, else all others."""
    others = ~np.isin(frame.ranks, [int(frame.ranks[location]), *suspects])
    near = others & (frame.stages == frame.stages[location])
    return near if near.any() else others


def _means(values: Floats, edges: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    parts = (values[begin:end] for begin, end in pairwise(edges))
    known = (part[np.isfinite(part)] for part in parts)
    return np.array([part.mean() if len(part) else np.nan for part in known], dtype=np.float64)
