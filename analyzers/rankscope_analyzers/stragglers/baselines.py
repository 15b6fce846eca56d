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
from rankscope_analyzers.numeric.medians import lower, mean, median, spread, typical
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.partition_imbalance import spread_within_steps
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.slow_loaders import FAST_SHARE
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
        duration=typical(rows["duration"]),
        exit_lateness=median(rows["exit_lateness"], 0)[0] if "exit_lateness" in rows else None,
        weights=median(rows["weights"], 0)[0] if "weights" in rows else None,
        work=typical(rows["work"]) if "work" in rows else 0.0,
        work_shares=_shares(rows["work"]) if "work" in rows else None,
        **_input(rows),
    )
    return _for_its_work(_with_input_of(inherited, made), inherited) if inherited else made


def _input(rows: Mapping[str, Floats]) -> dict[str, float]:
    """Return the input times of a baseline by field."""
    each, of_ranks = rows["data_median"], _without_longest(rows["input"])
    return {
        "data": typical(each),
        "data_mean": float(mean(_without_longest(each))),
        "data_noise": float(_usual_spread(each)),
        "waits": float(lower(mean(of_ranks), (0, 1, 2), FAST_SHARE).ravel()[0]),
        "waits_noise": typical(_usual_spread(of_ranks)),
    }


def _shares(work: Floats) -> Floats:
    """Return each rank's count over the mean; counts may be too large to be added up."""
    with np.errstate(over="ignore", invalid="ignore"):
        each = mean(work)
        middle = float(mean(each.ravel()))
        return np.asarray(each / middle) if middle > 0 else np.ones_like(each)


def _without_longest(values: Floats) -> Floats:
    """Return values of which the longest over the first axis is as long as the second longest.

    A single long wait is usual in the first steps, and no measure of later ones.
    """
    known = np.sort(np.where(np.isfinite(values), values, -np.inf), axis=0)
    return np.asarray(np.minimum(values, known[-2:][0]))


def _usual_spread(values: Floats) -> Floats:
    """Return the standard deviation over the first axis as most values show it."""
    return np.asarray(NORMAL_CONSISTENCY * median(np.abs(values - median(values, 0)), 0)[0])


def _with_input_of(before: Baseline, now: Baseline) -> Baseline:
    """Return a baseline with the input times of another one, for as many samples as ranks have now.

    Half as many take more than half the time.
    """
    counted = now.work > 0 and before.work > 0
    more = max(1.0, now.work / before.work) if counted else 1.0
    return replace(
        now,
        data=before.data * more,
        data_mean=before.data_mean * more,
        data_noise=before.data_noise * more,
        waits=before.waits * more,
        waits_noise=before.waits_noise * more,
    )


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
    everybody = going.kind == "global_slowdown" and going.shown_by not in ("exchange", "most")
    return everybody and clock - going.since >= NEW_PACE_SECONDS


def with_new_pace(known: Baseline, rows: Mapping[str, Floats], shape: Shape) -> Baseline:
    """Return a baseline with the compute and the duration of the newest steps."""
    now = learned(rows, shape)
    return replace(
        _with_input_of(known, replace(known, work=now.work)),
        stage=now.stage,
        stage_noise=now.stage_noise,
        weights=now.weights,
        duration=now.duration,
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
