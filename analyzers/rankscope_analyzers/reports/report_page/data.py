"""The data that the page's scripts draw, as JSON values: columns, and matrices in base64."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.row_statistics import row_median
from rankscope_analyzers.reports import heat_map, job_summary
from rankscope_analyzers.reports.heat_map import HeatMap
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.verdict import RankTimes
from rankscope_analyzers.text.sanitize import name

MOST_CELLS = 1_500_000
"""Cells of all maps of one kind on a page: 6 MB in base64 for three maps, of the 8 MB that a page
may have. Jobs of 6,250 ranks keep all bins, bigger ones and many on a page get fewer."""

FEWEST_BINS = 24
"""With fewer bins a fault could no longer be distinguished from a hiccup."""

MARKED = 16
"""Culprits that are marked next to the map; if more are slow the map itself shows it."""

MOST_INCIDENTS = 12
"""Incidents drawn into the timeline; more lanes would be taller than the map below them."""


def bins(reports: Sequence[JobReport]) -> int:
    """Return how many bins of time the maps of these jobs may have."""
    ranks = sum(len(report.frame.ranks) for report in reports if report.frame is not None)
    return max(FEWEST_BINS, min(heat_map.MOST_BINS, MOST_CELLS // max(ranks, 1)))


def job(report: JobReport, most_bins: int) -> dict[str, Any]:
    """Return what is drawn for one job."""
    locations = job_summary.locations(report)
    frame = report.frame
    return {
        "job": name(report.job_id),
        "culprits": list(job_summary.culprits(report)[:MARKED]),
        "ranks": _ranks(report, locations),
        "time": None if frame is None else _time(frame, report.incidents, most_bins),
    }


def _ranks(report: JobReport, locations: Mapping[int, RankLocation]) -> dict[str, list[Any]]:
    """Return columns of equal length, one entry per known rank, in the order of ranks."""
    times = {of.rank: of for of in report.verdict.ranks} if report.verdict else {}
    rows = {} if report.frame is None else _rows(report.frame)
    ratio = {} if report.frame is None else _ratios(report.frame)
    return {
        "rank": list(locations),
        "node": [name(location.node) for location in locations.values()],
        "gpu": [name(location.gpu) for location in locations.values()],
        "uuid": [name(location.uuid) for location in locations.values()],
        "nics": [name(", ".join(location.nics)) for location in locations.values()],
        "pod": [name(location.pod) for location in locations.values()],
        "row": [rows.get(rank, -1) for rank in locations],
        "ratio": [_number(ratio.get(rank)) for rank in locations],
        **{
            column: [_number(_seconds(times.get(rank), column)) for rank in locations]
            for column in ("step", "data", "compute", "sync")
        },
    }


def _seconds(times: RankTimes | None, column: str) -> float | None:
    return None if times is None else getattr(times, column)


def _rows(frame: StepFrame) -> dict[int, int]:
    return {rank: row for row, rank in enumerate(frame.ranks.tolist())}


def _ratios(frame: StepFrame) -> dict[int, float]:
    """Return how each rank's compute compares with its stage over all steps that are judged."""
    judged = frame.usable_only()
    if not len(judged.steps):
        return {}
    means = heat_map.compute_ratio(judged, np.array([0, len(judged.steps)]))[0]
    return dict(zip(frame.ranks.tolist(), means.tolist(), strict=True))


def _time(frame: StepFrame, incidents: Sequence[Incident], most_bins: int) -> dict[str, Any]:
    edges = heat_map.bin_edges(len(frame.steps), most_bins)
    median, longest = heat_map.step_times(frame, edges)
    begins = np.maximum.accumulate(np.nan_to_num(row_median(frame.starts)))
    return {
        "bins": len(edges) - 1,
        "first": frame.steps[edges[:-1]].tolist(),
        "last": frame.steps[edges[1:] - 1].tolist(),
        "start": _numbers(begins[edges[:-1]], digits=6),
        "median": _numbers(median),
        "longest": _numbers(longest),
        "restarts": _restarts(frame, edges),
        "incidents": [_span(one, begins, edges) for one in incidents[:MOST_INCIDENTS]],
        "maps": [_map(one) for one in heat_map.maps(frame, edges)],
    }


def _restarts(frame: StepFrame, edges: Integers) -> list[int]:
    """Return the bins in which a new run of the job begins."""
    first = np.flatnonzero(np.diff(frame.segments)) + 1
    return sorted(set((np.searchsorted(edges, first, side="right") - 1).tolist()))


def _span(incident: Incident, begins: Floats, edges: Integers) -> dict[str, Any]:
    """Return the bins, both included, during which an incident is active."""
    since, until = incident.since_unix_seconds, incident.until_unix_seconds
    return {
        "kind": name(incident.cause.kind),
        "first": 0 if since is None else _bin(since, begins, edges),
        "last": len(edges) - 2 if until is None else _bin(until, begins, edges),
        "ranks": list(incident.where.ranks[:MARKED]),
    }


def _bin(moment: float, begins: Floats, edges: Integers) -> int:
    step = max(int(np.searchsorted(begins, moment, side="right")) - 1, 0)
    return min(int(np.searchsorted(edges, step, side="right")) - 1, len(edges) - 2)


def _map(drawn: HeatMap) -> dict[str, Any]:
    return {
        "name": drawn.name,
        "scale": drawn.scale,
        "pool": drawn.pool,
        "low": drawn.low,
        "high": drawn.high,
        "top": round(drawn.top, 4),
        "cells": base64.b64encode(drawn.cells.tobytes()).decode("ascii"),
    }


def _numbers(values: Floats, digits: int = 9) -> list[float | None]:
    return [round(number, digits) if math.isfinite(number) else None for number in _floats(values)]


def _floats(values: Floats) -> Iterable[float]:
    return [float(number) for number in values]


def _number(seconds: float | None) -> float | None:
    return float(f"{seconds:.6g}") if seconds is not None and math.isfinite(seconds) else None
