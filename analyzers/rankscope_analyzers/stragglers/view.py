"""What the checks work on: the newest steps of a run and its baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.numeric.medians import mean, typical
from rankscope_analyzers.steps.records import TIMINGS
from rankscope_analyzers.stragglers.pipeline import gradients_ready
from rankscope_analyzers.stragglers.shape import Shape

HALF = 0.5
"""Fraction of its highest level above which a step shows a fault."""

WINDOW_STEPS = 16
"""Long enough to average the noise of steps, short enough to name a fault within 15 of them."""

LONG_STEPS = 40
"""Window for events that do not happen in every step."""

BASELINE_STEPS = 30
"""Usable steps at the start of a run that define its baseline."""

COST_STEPS = 8
"""Steps that costs are measured over: they lie within a fault that has just been found, while the
window's older half may not."""


Part = Literal["data", "compute", "sync", "rest", "cpu_wait"]
"""Parts of a step."""

PARTS: tuple[Part, ...] = get_args(Part)

CROWDED_SHARE = 0.01
"""Mean share of the step that ranks wait for a CPU: with their own CPUs they wait a tenth of it."""

BRIEF_SECONDS = 0.25
"""Shorter steps that are timed by the host's clock depend on its scheduler."""


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
        data_mean: its mean, which is longer where some steps wait for long, without the longest.
        data_noise: its standard deviation over most steps.
        waits: mean input time that most ranks reach, whichever steps they wait in.
        waits_noise: standard deviation of a rank's input time over most steps.
        duration: median step time.
        exit_lateness: (P, D, T) lateness in leaving the exchange, None where it is not known.
        weights: (P,) compute of each stage under wall timing of a pipeline, else None.
        work: median count of samples or tokens of a rank, 0 where they are not counted.
        work_shares: (P, D, T) the count of each rank over the mean; None if not counted.
    """

    relative: Floats
    replica: Floats
    replica_spread: float
    stage: Floats
    stage_noise: float
    transfer: Floats
    transfer_noise: Floats
    data: float
    duration: float
    data_mean: float = 0.0
    data_noise: float = 0.0
    waits: float = 0.0
    waits_noise: float = 0.0
    exit_lateness: Floats | None = None
    weights: Floats | None = None
    work: float = 0.0
    work_shares: Floats | None = None

    @property
    def paces(self) -> Floats:
        """Return (P,) the compute of each stage, without its waits for the others."""
        return self.stage if self.weights is None else self.weights


@dataclass(frozen=True, slots=True)
class Spikes:
    """Isolated stalls in the newest steps, oldest step first.

    Args:
        longest: (n,) longest stall of a step, 0 for none.
        nodes: (N,) number of steps in which a rank of the node was stalled.
        worst: (n,) rank with the longest stall, -1 for none.
    """

    longest: Floats
    nodes: Integers
    worst: Floats


@dataclass(frozen=True)
class View:
    """The newest `WINDOW_STEPS` steps (fewer at the start), oldest first; see `Quantities`.

    Where steps are short, each row stands for several: see `step_averaging`.

    Args:
        step_seconds: mean of their durations.
        cpu_wait: (n, P, D, T) seconds waiting for a CPU; None if not measured.
        input: (n, P, D, T) input time itself.
        sync: (n, P, D, T) time in collectives, waiting included.
        work: (n, P, D, T) tokens or samples; None if not counted.
        exit_lateness: (n, P, D, T) lateness in leaving the exchange, None where it is not known.
        loader: (n, P, D, T) what the loader's workers need for the batches of a step; None where
            none is timed.
        means: the records are means over many steps; single steps are unknown.
        known: those of `PARTS` that are measured for most ranks in most of these steps.
        periodic_waits: (P, D, T) seconds a step that ranks wait at exchanges of every n-th step,
            which are none of these steps; None where there are none.
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
    data_long: Floats
    data_median: Floats
    transfer: Floats
    transfer_long: Floats
    residual: Floats
    residual_long: Floats
    compute: Floats
    input: Floats
    sync: Floats
    cpu_wait: Floats | None
    work: Floats | None
    exit_lateness: Floats | None
    exit_lateness_long: Floats | None
    means: bool
    known: frozenset[Part]
    weights: Floats | None = None
    loader: Floats | None = None
    periodic_waits: Floats | None = None

    @property
    def paces(self) -> Floats:
        """Return (n, P) the compute of each stage, without its waits for the others."""
        return self.stage if self.weights is None else self.weights

    @cached_property
    def more_work(self) -> float:
        """Return the factor by which ranks have more samples (or tokens) than at the start.

        It is 1 if they are not counted, or if there are fewer: half a batch takes more than half
        the time.
        """
        if self.work is None or self.baseline is None or not self.baseline.work > 0:
            return 1.0
        return max(1.0, typical(self.work) / self.baseline.work)

    @property
    def flat(self) -> bool:
        """Return True if every rank is a replica of its own."""
        return self.shape.pipeline == self.shape.tensor == 1

    @property
    def stages_are_ranks(self) -> bool:
        """Return True if the job is one pipeline of one rank for each stage."""
        return self.shape.replicas == self.shape.tensor == 1 < self.shape.pipeline

    @cached_property
    def crowded(self) -> bool:
        """Return True if ranks share CPUs, so that their times depend on the scheduler."""
        brief = self.step_seconds < BRIEF_SECONDS and self.shape.timing != TIMINGS["kernel"]
        if self.cpu_wait is None:
            return brief
        return brief or float(mean(mean(self.cpu_wait).ravel())) > CROWDED_SHARE * self.step_seconds

    def is_silent(self, rank: int) -> bool:
        """Return True if a (global) rank of the run reported none of the newest steps."""
        position = int(self.shape.positions_of(np.array([rank]))[0])
        if position < 0:
            return False
        parts = (self.input, self.compute, self.sync)
        newest = (one[-COST_STEPS:].reshape(-1, self.shape.world) for one in parts)
        return not any(np.isfinite(one[:, position]).any() for one in newest)

    def saved_share(self, compute: Floats) -> float:
        """Return the share of the newest steps that `compute` would save.

        Args:
            compute: (COST_STEPS or fewer, P, D, T) what the ranks should have needed, seconds.
        """
        real = self.compute[-COST_STEPS:]
        seconds = self._finish_time(real) - self._finish_time(compute)
        return float(mean(seconds / self.duration[-COST_STEPS:]))

    def _finish_time(self, compute: Floats) -> Floats:
        """Return (n,) when the last replica finishes; missing ranks delay none."""
        busy = np.nan_to_num(np.fmax.reduce(compute, axis=3))
        if self.shape.wall:
            return np.asarray(busy.max(axis=(1, 2)))
        ready = gradients_ready(np.zeros_like(busy), busy, self.shape.microbatches)
        return np.asarray(ready.max(axis=(1, 2)))


@dataclass(frozen=True, slots=True)
class SampleImbalance:
    """How unevenly samples (or tokens) are distributed.

    Args:
        rank: that has the most in nearly every step, -1 if it changes.
        largest: mean of the largest count of a step, or mean count of `rank`.
        mean: over all ranks.
        rate: seconds of compute per additional sample.
        explained: share of the differences in compute that the counts explain.
    """

    rank: int
    largest: float
    mean: float
    rate: float
    explained: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """One explanation of the lost time in a window.

    Args:
        kind: class of the fault.
        cost: share of the step time that it takes.
        ranks: most certain first, empty if no rank is responsible.
        stage: heavy pipeline stage, -1 if none.
        observed: value of the culprit.
        expected: value that it should have.
        certainty: factor on the confidence, 1 if the culprit itself is identified.
        stages: compute of each pipeline stage, for classes about stages.
        shown_by: how a class shows that can show in several ways: "cpu_wait",
            "freeze", "wait", "input", "workers", "checkpoint", "samples", "exchange", "steps",
            "most", "from_start", "ranks", "stage", "only_loader".
        sample_imbalance: how unevenly samples are distributed, if that is the fault.
        began: step of the window in which it began, as far as the window shows; negative for one
            that many steps before the window.
        ended: last step of the window that shows it, -1 for the newest one.
        lasted_seconds: for how long, for what shows between windows: slow checkpoints.
        slower: number of ranks that compute longer than before, and of those that are known; zeros
            where they are not counted.
    """

    kind: FaultClass
    cost: float
    ranks: tuple[int, ...]
    stage: int
    observed: float
    expected: float
    certainty: float = 1.0
    stages: tuple[float, ...] = ()
    shown_by: str = ""
    sample_imbalance: SampleImbalance | None = None
    began: int = 0
    ended: int = -1
    lasted_seconds: float = 0.0
    slower: tuple[int, int] = (0, 0)

    def with_extent(self, series: Floats) -> Candidate:
        """Return the candidate with the first and the last step of the window that show it.

        Args:
            series: (n,) how late the culprit was in each step, not finite where unknown.
        """
        late = np.ravel(series)
        known = np.where(np.isfinite(late), late, 0.0)
        level = float(np.sort(known)[-max(1, len(known) // 4) :].mean())
        slow = np.flatnonzero(known > HALF * level)
        if level <= 0 or not len(slow):
            return self
        return replace(self, began=int(slow[0]), ended=int(slow[-1]))

    def with_global_ranks(self, shape: Shape) -> Candidate:
        """Return the candidate with global ranks instead of positions in a shape."""
        if shape.ranks is None:
            return self
        uneven = self.sample_imbalance
        if uneven is not None and uneven.rank >= 0:
            uneven = replace(uneven, rank=shape.ranks_at((uneven.rank,))[0])
        return replace(self, ranks=shape.ranks_at(self.ranks), sample_imbalance=uneven)
