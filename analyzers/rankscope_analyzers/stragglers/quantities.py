"""From measured durations to what can be compared: each rank against its peers in the same step.

O = T - D - K - Y                     residual: optimizer, barrier, checkpoint, host stalls
C = K / median(K of the stage)        removes the step's sequence length and the stage's weight
R_d = median(C of replica d)          the replica's own sequence length, or a slow replica
c = C / R_d                           where a replica has enough ranks to know R_d
X_g = min over group g of (Y - waits) transfer time: the last arriver does not wait
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.medians import HALVES, median, reference, typical
from rankscope_analyzers.stragglers.pipeline import gradients_ready, stage_weights
from rankscope_analyzers.stragglers.shape import Shape

REPLICA_RANKS = 3
"""With fewer ranks the median of a replica is the culprit itself, or its mean with one other."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Measured durations of n consecutive executed steps, all (n, P, D, T), NaN where missing.

    Args:
        other: optimizer, evaluation, checkpoint, logging; None if it is the remainder of the other
            parts.
        cpu_wait: waiting for a CPU, ready to run, outside of collectives; None if not measured.
        work: tokens or samples; None if not counted.
        steps: number of steps that a record averages; None if every record is one step.
        exit_lateness: how much later than the other ranks of its node a rank left the exchange, by
            the wall clock; None if clocks are not compared.
        loader: time that the loader's workers need for the batches of a step; None if none is
            timed.
    """

    step: Floats
    data: Floats
    compute: Floats
    sync: Floats
    other: Floats | None = None
    cpu_wait: Floats | None = None
    work: Floats | None = None
    steps: Floats | None = None
    exit_lateness: Floats | None = None
    loader: Floats | None = None

    def at(self, index: Integers) -> Steps:
        """Return some of the steps."""

        def part(values: Floats | None) -> Floats | None:
            return None if values is None else values[index]

        return Steps(
            self.step[index], self.data[index], self.compute[index], self.sync[index],
            part(self.other), part(self.cpu_wait), part(self.work), part(self.steps),
            part(self.exit_lateness), part(self.loader),
        )  # fmt: skip

    @property
    def loaded(self) -> Floats:
        """Return input time, 0 of ranks that compute and do not load where others do."""
        unknown = np.isnan(self.data)
        if not unknown.any():
            return self.data
        some = ~unknown.all(axis=(1, 2, 3), keepdims=True)
        return np.where(unknown & some & np.isfinite(self.compute), 0.0, self.data)

    @property
    def rest(self) -> Floats:
        """Return the time that is neither input, compute, exchange nor waiting for a CPU."""
        unaccounted = self.step - self.data - self.compute - self.sync
        if self.cpu_wait is not None:
            unaccounted = unaccounted - np.nan_to_num(self.cpu_wait)
        return (
            unaccounted
            if self.other is None
            else np.where(np.isfinite(self.other), self.other, unaccounted)
        )


@dataclass(frozen=True, slots=True)
class Quantities:
    """Quantities derived from n steps.

    Args:
        duration: (n,) longest step time.
        relative: (n, P, D, T) compute over its peers, 1 is normal.
        replica: (n, D) compute of each replica over the others.
        stage: (n, P) median compute of each stage; under wall timing of a pipeline, when its
            gradients are ready.
        unit: (n, P) compute for which a ratio of 1 stands; where a replica has a ratio of its own
            or timing is by wall clock in a pipeline, that of its stage.
        data: (n, P, D, T) input time beyond that of healthy ranks: see `reference`.
        data_median: (n,) that of healthy ranks.
        transfer: (n, P, T) time of the gradient exchange of each group.
        residual: (n, P, D, T) residual beyond the median of the rank's group.
        compute: (n, P, D, T) as measured.
        rest: (n, P, D, T) the residual itself.
        sync: (n, P, D, T) as measured.
        busy: (n, P, D, T) time of the step that is not spent in collectives.
        input: (n, P, D, T) input time as measured, NaN of ranks that load nothing while others do.
        rest_is_separate: True if the rest is measured separately; otherwise compute contains it.
        cpu_wait: (n, P, D, T) as measured, None if it is not.
        work: (n, P, D, T) as counted, None if not counted.
        exit_lateness: (n, P, D, T) how much later than the other ranks of its node a rank left the
            exchange; None if clocks are not compared.
        steps: (n,) number of steps that each row stands for.
        weights: (n, P) compute of each stage under wall timing of a pipeline, None elsewhere: there
            `stage` is it.
        loader: (n, P, D, T) as measured, None where no loader's workers are timed.
    """

    duration: Floats
    relative: Floats
    replica: Floats
    stage: Floats
    unit: Floats
    data: Floats
    data_median: Floats
    transfer: Floats
    residual: Floats
    compute: Floats
    rest: Floats
    sync: Floats
    busy: Floats
    input: Floats
    rest_is_separate: bool
    cpu_wait: Floats | None
    work: Floats | None
    exit_lateness: Floats | None
    steps: Floats
    weights: Floats | None = None
    loader: Floats | None = None

    @property
    def timed(self) -> Floats:
        """Return (n,) the share of the ranks whose compute was timed."""
        return np.asarray(np.isfinite(self.compute).mean(axis=(1, 2, 3)))

    def single_step(self, row: int) -> Quantities:
        """Return a copy of one step that does not keep the others in memory."""
        values: dict[str, Any] = {
            field.name: value[row : row + 1].copy()
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        return replace(self, **values)


def derive(steps: Steps, shape: Shape) -> Quantities:
    """Return the quantities of some steps; each step is independent of the others."""
    rest = steps.rest
    residual = rest - median(rest, 2)
    stage = median(steps.compute, (2, 3))
    duration = np.fmax.reduce(steps.step, axis=(1, 2, 3))
    many = shape.replicas * shape.tensor > HALVES
    usual = stage if many else reference(steps.compute, (2, 3))
    with np.errstate(invalid="ignore", divide="ignore"):
        usual = np.maximum(usual, LEAST_COMPUTE * duration[:, None, None, None])
        by_stage = steps.compute / usual
    replica = median(by_stage, (1, 3))
    alone = shape.pipeline * shape.tensor < REPLICA_RANKS
    relative = by_stage if alone or shape.wall else by_stage / replica
    data = _of_loaders(steps.data)
    middle = reference(data, (1, 2, 3))
    ready = _stage_ready_times(steps) if shape.wall and shape.pipeline > 1 else stage[:, :, 0, 0]
    return Quantities(
        duration=duration,
        relative=relative,
        replica=replica[:, 0, :, 0],
        stage=ready,
        unit=ready if shape.pipeline > 1 else usual[:, :, 0, 0],
        data=data - middle,
        data_median=middle[:, 0, 0, 0],
        transfer=_transfer(steps, shape, residual),
        residual=residual,
        compute=steps.compute,
        rest=rest,
        sync=steps.sync,
        busy=steps.step - steps.sync,
        input=data,
        rest_is_separate=_is_rest_separate(steps, rest),
        cpu_wait=steps.cpu_wait,
        work=steps.work,
        exit_lateness=steps.exit_lateness,
        steps=_weights(steps),
        weights=_unchained(steps, shape) if shape.wall and shape.pipeline > 1 else None,
        loader=steps.loader,
    )


def _of_loaders(data: Floats) -> Floats:
    """Return input times without those of ranks that fetch nothing while others load for them.

    A loader takes some time, however far its workers are ahead; trainers that dispatch the batches
    of one rank report none on the others.
    """
    nothing = data == 0
    if not nothing.any():
        return data
    return np.where(nothing & (data > 0).any(axis=(1, 2, 3), keepdims=True), np.nan, data)


LEAST_COMPUTE = 0.01
"""Share of the step that peers count as computing at least: ranks that do next to nothing but wait
for a slow one would otherwise make its ratio infinite, or their own a matter of microseconds."""


def _is_rest_separate(steps: Steps, rest: Floats) -> bool:
    """Return True if the rest is known: from its own column, or as what the other parts leave.

    Probes that do not measure it include it in compute, so that the parts leave nothing.
    """
    if steps.other is not None:
        return True
    return not typical(rest) < NOTHING_SHARE * typical(steps.step)


NOTHING_SHARE = 0.005
"""Share of the step: the optimizer alone takes more. Uncounted waits for a CPU are in no part of
some steps, and are the largest part of others."""


def _weights(steps: Steps) -> Floats:
    """Return (n,) the number of steps that each row stands for."""
    if steps.steps is None:
        return np.ones(len(steps.step))
    counts = median(np.where(steps.steps >= 1, steps.steps, np.nan), (1, 2, 3)).ravel()
    return np.where(np.isfinite(counts), counts, 1.0)


def _stage_ready_times(steps: Steps) -> Floats:
    """Return (n, P) when stages are ready, from the distances between them within each replica.

    Stages of a replica end at fixed distances whatever made the replica late: slow input or a slow
    replica does not affect typical distances, but would affect differences of medians. The last
    stage is that of the fastest replica: what delays all replicas is the work, not a rank.
    """
    ready = median(steps.loaded + steps.compute, 3)[..., 0]
    compute = median(steps.compute[:, -1:], 3)[..., 0]
    last = np.fmin.reduce(compute, axis=2)
    apart = reference(ready[:, :-1] - ready[:, 1:], (2,))[..., 0]
    return np.asarray(np.concatenate([last + np.cumsum(apart[:, ::-1], 1)[:, ::-1], last], axis=1))


def _unchained(steps: Steps, shape: Shape) -> Floats:
    """Return (n, P) the compute of each stage in the median replica."""
    arrival = np.fmax.reduce(steps.loaded, axis=3)
    ready = median(steps.loaded + steps.compute, 3)[..., 0]
    weights = stage_weights(arrival, ready, shape.microbatches)
    return np.asarray(median(weights, 2)[..., 0])


STALL_SHARE = 0.02
"""Share of the step above which a residual beyond the group's is a stall that peers wait for."""


def _transfer(steps: Steps, shape: Shape, residual: Floats) -> Floats:
    """Return (n, P, T) the time of the last arriver of each group, which does not wait.

    If that rank may be a silent one, its tensor peers stand in for it: they arrive together.
    """
    bare = steps.sync if shape.wall else steps.sync - _waits(steps, shape, residual)
    if shape.tensor > 1 and np.isnan(bare).any():
        bare = np.where(np.isnan(bare), median(bare, 3), bare)
    return np.asarray(np.fmin.reduce(bare, axis=2))


def _waits(steps: Steps, shape: Shape, residual: Floats) -> Floats:
    """Return how long each rank waited for its tensor and pipeline peers."""
    if shape.pipeline == shape.tensor == 1:
        return np.zeros_like(steps.data)
    stall = np.where(residual > STALL_SHARE * steps.step, residual, 0.0)
    own = steps.loaded + steps.compute + stall
    arrival = np.fmax.reduce(steps.loaded, axis=3)
    busy = np.fmax.reduce(own, axis=3) - arrival
    arrival, busy = _filled(arrival), _filled(busy)
    ready = gradients_ready(arrival, busy, shape.microbatches)
    return np.asarray(ready[..., None] - own)


def _filled(values: Floats) -> Floats:
    """Replace silent members by the median of their stage; a silent stage stays unknown."""
    if not np.isnan(values).any():
        return values
    return np.where(np.isnan(values), median(values, 2), values)
