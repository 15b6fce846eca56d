"""The usual durations of a job: learned at the start of its runs, kept across restarts, renewed.

A run of a size that the job had before is compared with the first run of that size. A run of
another size keeps the usual times of links and storage and, if samples are counted, of compute, so
that a slowdown that comes with an elastic restart is noticed. Otherwise the first steps of the new
size count as usual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.medians import median, spread, typical
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.partition_imbalance import spread_within_steps
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.view import Baseline

MAXIMUM_SIZES = 16
"""Sizes of a job that are remembered, the most recent ones: nodes leave and come back."""

NEW_PACE_SECONDS = 86400.0
"""A slowdown of all ranks that nobody repairs for a day is how the job works: its sequences became
longer, for example. It is then reported as over, and becomes the baseline of later steps."""

Size = tuple[int, int, int]


def learned(
    rows: Mapping[str, Floats], shape: Shape, inherited: Baseline | None = None
) -> Baseline:
    """Return the baseline of a run.

    Args:
        rows: fields of `Quantities` over some steps, those of the first axis.
        shape: arrangement of the run.
        inherited: the baseline of a run of another size, with the same groups.
    """
    pace = median(rows.get("weights", rows["stage"]), 1)[:, 0]
    transfer = median(rows["transfer"], 0)[0]
    made = Baseline(
        relative=median(rows["relative"], 0)[0],
        replica=median(rows["replica"], 0)[0],
        replica_spread=spread_within_steps(rows["replica"], shape.wall),
        stage=median(rows["stage"], 0)[0],
        stage_noise=float(spread(pace / typical(pace))) if typical(pace) > 0 else 0.0,
        transfer=inherited.transfer if inherited else transfer,
        transfer_noise=inherited.transfer_noise if inherited else spread(rows["transfer"]),
        data=inherited.data if inherited else typical(rows["data_median"]),
        duration=typical(rows["duration"]),
        exit_lateness=median(rows["exit_lateness"], 0)[0] if "exit_lateness" in rows else None,
        weights=median(rows["weights"], 0)[0] if "weights" in rows else None,
        work=typical(rows["work"]) if "work" in rows else 0.0,
    )
    return _for_its_work(made, inherited) if inherited else made


def _for_its_work(made: Baseline, before: Baseline) -> Baseline:
    """Return a baseline with the compute of another size, scaled to the samples of this one."""
    if not (made.work > 0 and before.work > 0) or made.stage.shape != before.stage.shape:
        return made
    if (made.weights is None) != (before.weights is None):
        return made
    more = made.work / before.work
    weights = None if before.weights is None else before.weights * more
    return replace(made, stage=before.stage * more, weights=weights)


def is_new_pace(going: Incident, clock: float) -> bool:
    """Return True if all ranks have computed longer for long enough to call it usual.

    Args:
        going: an open incident.
        clock: of the newest step.
    """
    everybody = going.kind == "global_slowdown" and going.shown_by != "exchange"
    return everybody and clock - going.since >= NEW_PACE_SECONDS


def with_new_pace(known: Baseline, rows: Mapping[str, Floats], shape: Shape) -> Baseline:
    """Return a baseline with the compute and the duration of the newest steps."""
    now = learned(rows, shape)
    return replace(
        known,
        stage=now.stage,
        stage_noise=now.stage_noise,
        weights=now.weights,
        duration=now.duration,
        work=now.work,
    )


class KnownSizes:
    """The baselines of a job by size; bounded."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Size, Baseline] = {}

    def add(self, size: Size, baseline: Baseline) -> None:
        """Remember a baseline; the sizes that the job had longest ago are forgotten."""
        self._known.pop(size, None)
        self._known[size] = baseline
        while len(self._known) > MAXIMUM_SIZES:
            del self._known[next(iter(self._known))]

    def of(self, size: Size) -> Baseline | None:
        """Return the baseline of a size."""
        return self._known.get(size)

    def nearest(self, size: Size) -> Baseline | None:
        """Return the newest baseline of another size with as many groups."""
        pipeline, _, tensor = size
        alike = [
            one
            for (stages, _, width), one in self._known.items()
            if (stages, width) == (pipeline, tensor)
            and np.shape(one.transfer) == (pipeline, tensor)
        ]
        return alike[-1] if alike else None
