"""What the conclusions look at: the newest steps of a run and its healthy beginning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.medians import mean
from rankscope_analyzers.stragglers.pipeline import gradients_ready
from rankscope_analyzers.stragglers.shape import Shape

WINDOW_STEPS = 16
"""Long enough to average the noise of steps, short enough to name a fault within 15 of them."""

LONG_STEPS = 40
"""For what does not happen in every step."""

COST_STEPS = 8
"""The newest steps lie inside a fault that is just being found; the window's older half may not."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Medians over the first usable steps of a run, and the noise of what is compared with them.

    Args:
        relative: (P, D, T) a rank's compute over its peers'.
        replica: (D,) a replica's compute over the others'.
        replica_spread: standard deviation of replicas within a step.
        stage: (P,) compute of each stage.
        stage_noise: relative standard deviation of the whole job's compute over steps.
        transfer: (P, T) transfer time of each group.
        transfer_noise: (P, T) its standard deviation over steps.
        data: median input time.
    """

    relative: Floats
    replica: Floats
    replica_spread: float
    stage: Floats
    stage_noise: float
    transfer: Floats
    transfer_noise: Floats
    data: float


@dataclass(frozen=True, slots=True)
class Spikes:
    """Isolated stalls in the newest steps, oldest step first.

    Args:
        longest: (n,) longest stall of a step, 0 where none.
        nodes: (N,) in how many of the steps a rank of the node was stalled.
        worst: (n,) rank with the longest stall, -1 where none.
    """

    longest: Floats
    nodes: Integers
    worst: Floats


@dataclass(frozen=True, slots=True)
class View:
    """The newest `WINDOW_STEPS` steps (fewer at the start), oldest first; see `Quantities`.

    `step_seconds` is the mean of their durations.
    """

    shape: Shape
    baseline: Baseline | None
    spikes: Spikes
    step_seconds: float
    duration: Floats
    relative: Floats
    replica: Floats
    replica_long: Floats
    stage: Floats
    data: Floats
    data_median: Floats
    transfer: Floats
    transfer_long: Floats
    residual: Floats
    residual_long: Floats
    compute: Floats

    def saved(self, compute: Floats) -> float:
        """Return the share of the newest steps that `compute` instead of the real one would save.

        Args:
            compute: (COST_STEPS or fewer, P, D, T) what the ranks should have needed.
        """
        real = self.compute[-COST_STEPS:]
        seconds = self._end(real) - self._end(compute)
        return float(mean(seconds / self.duration[-COST_STEPS:]))

    def _end(self, compute: Floats) -> Floats:
        """Return (n,) when the last replica is done; missing ranks hold nobody up."""
        busy = np.nan_to_num(np.fmax.reduce(compute, axis=3))
        if self.shape.wall:
            return np.asarray(busy.max(axis=(1, 2)))
        ready = gradients_ready(np.zeros_like(busy), busy, self.shape.microbatches)
        return np.asarray(ready.max(axis=(1, 2)))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One explanation of the lost time in a window.

    Args:
        kind: class of the fault.
        cost: share of the step time that it takes.
        ranks: best first, empty when nobody is to blame.
        stage: heavy pipeline stage, -1 where none.
        observed: what the culprit shows.
        expected: what it should show.
        certainty: factor on the confidence, 1 where the culprit itself is identified.
        stages: compute of each pipeline stage, where the class is about them.
    """

    kind: FaultClass
    cost: float
    ranks: tuple[int, ...]
    stage: int
    observed: float
    expected: float
    certainty: float = 1.0
    stages: tuple[float, ...] = ()
