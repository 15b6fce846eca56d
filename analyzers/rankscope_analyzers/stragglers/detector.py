"""The incremental feed: steps go in, incidents come out, memory stays bounded.

What is found after a step depends on that step and earlier ones only, so that a trace that is cut
at the time of a verdict gives the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.stragglers import (
    all_slower,
    host_stalls,
    slow_input,
    slow_kernels,
    slow_transfer,
    uneven_work,
)
from rankscope_analyzers.stragglers.incidents import Incident, Moment
from rankscope_analyzers.stragglers.ledger import Ledger
from rankscope_analyzers.stragglers.quantities import Quantities, Steps, derive
from rankscope_analyzers.stragglers.run import Run
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.special_steps import CheckpointWatch, Ordinary
from rankscope_analyzers.stragglers.view import Candidate, View

WARM_UP_STEPS = 12
"""Steps after every start that are slow on healthy hardware: allocation, autotuning, caches."""

STRIDE_STEPS = 4
"""Usable steps between evaluations, a quarter of a window."""

FIRST_EVALUATION = 4
"""Usable steps of a run before anything is judged; two evaluations later there are 12."""

MINIMUM_PRESENCE = 0.5
"""A step that fewer ranks than this reported has no trustworthy median."""

CONCLUSIONS: Sequence[Callable[[View], Candidate | None]] = (
    slow_input.some,
    slow_input.everybody,
    slow_kernels.ranks,
    slow_kernels.replicas,
    uneven_work.imbalance,
    host_stalls.stalls,
    slow_transfer.transfer,
    all_slower.compute,
)
"""In the order in which a step spends its time."""


class Detector:
    """Finds the incidents of one job from its steps in order.

    Args:
        node_names: names of the nodes that shapes count.
    """

    __slots__ = (
        "_clock",
        "_clocks",
        "_executed",
        "_ledger",
        "_node_names",
        "_ordinary",
        "_run",
        "_watch",
    )

    def __init__(self, node_names: Sequence[str]) -> None:
        self._node_names = tuple(node_names)
        self._ledger = Ledger()
        self._watch = CheckpointWatch()
        self._run: Run | None = None
        self._ordinary = Ordinary((1, 1, 1))
        self._executed = 0
        self._clock = 0.0
        self._clocks: list[float] = []

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Return the incidents so far, in order of detection."""
        return self._ledger.incidents

    def restart(self, shape: Shape) -> None:
        """Begin a run: the first one, or one after a restart."""
        self._run = Run(shape, len(self._node_names), self._run)
        self._ordinary = Ordinary(shape.sizes)
        self._executed = 0
        self._clocks = []

    def feed(self, counters: Integers, ends: Floats, steps: Steps) -> None:
        """Take executed steps of the current run, one or more at a time.

        Args:
            counters: (n,) step counter of each.
            ends: (n,) record clock of the newest record of each.
            steps: their durations.
        """
        run = self._run
        if run is None:
            raise ValueError("feed() was called before restart(): no run has begun")
        present = np.isfinite(steps.step).mean(axis=(1, 2, 3))
        judged = np.flatnonzero(present >= MINIMUM_PRESENCE)
        chosen = Steps(
            *(values[judged] for values in (steps.step, steps.data, steps.compute, steps.sync))
        )
        now = derive(chosen, run.shape)
        row = 0
        for index in range(len(counters)):
            self._clock = max(self._clock, float(ends[index]))
            self._executed += 1
            if row < len(judged) and judged[row] == index:
                self._step(run, now, row, int(counters[index]))
                row += 1

    def _step(self, run: Run, now: Quantities, row: int, counter: int) -> None:
        ordinary, written = self._ordinary.judge(now.rest[row], float(now.duration[row]))
        if self._executed <= WARM_UP_STEPS:
            return
        if written is not None:
            self._checkpoint(run, counter, written)
        if not ordinary:
            return
        run.push(now, row)
        self._clocks = [*self._clocks[-15:], self._clock]
        if run.usable >= FIRST_EVALUATION and run.usable % STRIDE_STEPS == 0:
            self._evaluate(run)

    def _evaluate(self, run: Run) -> None:
        view = run.view()
        found = [candidate for conclude in CONCLUSIONS if (candidate := conclude(view))]
        moment = Moment(self._clock, self._clocks[0])
        self._ledger.take(found, run.shape.wall, moment, partial(self._nodes, run.shape))
        going = self._ledger.open
        # Under wall timing a slow rank and a stall are both long compute.
        if run.shape.wall and going and going.kind != "host_transient":
            run.forget_stalls()

    def _checkpoint(self, run: Run, counter: int, written: Floats) -> None:
        seconds = self._ordinary.step_seconds()
        wrote, found = self._watch.see(counter, written, run.shape, seconds)
        if found:
            moment = Moment(self._clock, self._clock)
            self._ledger.slow_checkpoint(found, moment, partial(self._nodes, run.shape))
        elif wrote:
            self._ledger.good_checkpoint(self._clock)

    def _nodes(self, shape: Shape, found: Candidate) -> tuple[str, ...]:
        numbers = shape.nodes.ravel()[list(found.ranks)]
        return tuple(self._node_names[n] if n >= 0 else "unknown" for n in numbers)
