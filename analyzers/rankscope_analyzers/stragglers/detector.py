"""The incremental feed: steps go in, incidents come out, memory stays bounded.

What is found after a step depends on that step and earlier ones only, so that a trace that is cut
at the time of a verdict gives the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.stragglers import (
    all_slower,
    dealt_work,
    host_stalls,
    slow_input,
    slow_kernels,
    slow_transfer,
    starved,
    uneven_work,
)
from rankscope_analyzers.stragglers.bins import BIN_SECONDS
from rankscope_analyzers.stragglers.chores import Chores, Waited
from rankscope_analyzers.stragglers.incidents import Incident, Moment
from rankscope_analyzers.stragglers.ledger import Ledger
from rankscope_analyzers.stragglers.long_steps import MOST_IN_A_ROW, LongStep, LongSteps, Recurring
from rankscope_analyzers.stragglers.quantities import Quantities, Steps, derive
from rankscope_analyzers.stragglers.run import Run
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.special_steps import CheckpointWatch, Ordinary
from rankscope_analyzers.stragglers.view import Candidate, Part, View

WARM_UP_STEPS = 12
"""Steps after every start that are slow on healthy hardware: allocation, autotuning, caches."""

WARM_UP_SHARE = 0.25
"""At most this share of a run counts as warm-up, so that a short one can be judged at all."""

FEWEST_BINS = 48
"""Into so many parts at least a short run is divided: three windows."""

STRIDE_STEPS = 4
"""Usable steps between evaluations, a quarter of a window."""

FIRST_EVALUATION = 4
"""Usable steps of a run before anything is judged; two evaluations later there are 12."""

MINIMUM_PRESENCE = 0.5
"""A step that fewer ranks than this reported has no trustworthy median."""

FREEZE_SECONDS, FREEZE_TIMES = 5.0, 20.0
"""One rank that stands still for so long, and so many steps, is told even if it happens once."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """One way to judge.

    Args:
        judge: the judgement.
        kind: class that it can find.
        needs: parts of the step that must be measured.
    """

    judge: Callable[[View], Candidate | None]
    kind: FaultClass
    needs: frozenset[Part]


MOST_MARKED = 0.3
"""Share of the steps that may be marked: where nearly every one is, that is how the job works."""

CONCLUSIONS: Sequence[Conclusion] = (
    Conclusion(starved.ranks, "host_transient", frozenset({"cpu_wait"})),
    Conclusion(slow_input.some, "data_loader", frozenset({"data"})),
    Conclusion(slow_input.everybody, "storage_checkpoint", frozenset({"data"})),
    Conclusion(dealt_work.counts, "partition_imbalance", frozenset({"compute"})),
    Conclusion(slow_kernels.ranks, "gpu_compute", frozenset({"compute"})),
    Conclusion(slow_kernels.replicas, "gpu_compute", frozenset({"compute"})),
    Conclusion(uneven_work.imbalance, "partition_imbalance", frozenset({"compute"})),
    Conclusion(host_stalls.stalls, "host_transient", frozenset({"compute", "sync"})),
    Conclusion(slow_transfer.transfer, "network_link", frozenset({"compute", "sync"})),
    Conclusion(all_slower.compute, "global_slowdown", frozenset({"compute"})),
    Conclusion(all_slower.steps, "global_slowdown", frozenset()),
)
"""In the order in which a step spends its time, behind what delays all of it."""


MOST_NODES = 1 << 16
"""Nodes of a job that are known by name, four times those of the largest one; a job that moves from
node to node for months does not fill the memory with names."""


@dataclass(frozen=True, slots=True)
class Length:
    """How much of a run there is: of a short one less is warm-up, and less is averaged."""

    steps: int
    seconds: float

    @property
    def is_short(self) -> bool:
        """Say whether the run is shorter than its warm-up and its averages ask for."""
        return (
            self.steps * WARM_UP_SHARE < WARM_UP_STEPS or self.seconds < FEWEST_BINS * BIN_SECONDS
        )


NO_LENGTH = Length(0, 0.0)


class Detector:
    """Finds the incidents of one job from its steps in order."""

    __slots__ = (
        "_began",
        "_chores",
        "_clock",
        "_clocks",
        "_executed",
        "_ledger",
        "_long",
        "_marks",
        "_node_names",
        "_of_all",
        "_of_firsts",
        "_ordinary",
        "_pending",
        "_run",
        "_warm_up",
        "_watch",
        "known",
        "length",
    )  # fmt: skip

    def __init__(self) -> None:
        self._node_names: dict[str, int] = {}
        self._ledger = Ledger()
        self._watch = CheckpointWatch()
        self._chores = Chores()
        self._run: Run | None = None
        self._ordinary = Ordinary((1, 1, 1))
        self._long: LongSteps | None = None
        self._of_all, self._of_firsts = Recurring(), Recurring()
        self._pending: list[tuple[Quantities, int, float]] = []
        self._executed = self._marks = 0
        self._clock = 0.0
        self._warm_up = WARM_UP_STEPS
        self._began = np.inf
        self._clocks: list[float] = []
        self.known: frozenset[Part] = frozenset()
        self.length = NO_LENGTH

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Return the incidents so far, in order of detection."""
        return self._ledger.incidents

    def finish(self) -> None:
        """Take what is known as all there is: long steps at the end were exceptions."""
        self._settle()

    def conclude(self) -> tuple[Incident, ...]:
        """Return the incidents as of the newest step, those of short jobs too; change nothing."""
        run = self._run
        if run is None or not self._clocks:
            return self.incidents
        moment = Moment(self._clocks[-1], self._clocks[0], tuple(self._clocks))
        observed = self._clock - float(self._began)
        return self._ledger.conclude(observed, moment, partial(self._nodes, run.shape))

    @property
    def chores(self) -> Waited:
        """Return what first ranks did while all others waited."""
        return self._chores.waited

    def number(self, names: Sequence[str]) -> Integers:
        """Return the number by which shapes are to count each of some nodes, -1 for one too many.

        Numbers are given in the order in which nodes are first named.
        """
        known = self._node_names
        for name in names:
            if len(known) < MOST_NODES:
                known.setdefault(name, len(known))
        return np.array([known.get(name, -1) for name in names], dtype=np.int64)

    def restart(self, shape: Shape, length: Length | None = None) -> None:
        """Begin a run: the first one, or one after a restart.

        Args:
            shape: how its ranks are arranged.
            length: of what there is of it, where that may be all; None for a run that goes on.
        """
        self._settle()
        self._warm_up, bin_seconds = WARM_UP_STEPS, BIN_SECONDS
        if length is not None:
            self._warm_up = min(WARM_UP_STEPS, int(length.steps * WARM_UP_SHARE))
            bin_seconds = min(BIN_SECONDS, length.seconds / FEWEST_BINS)
        self._run = Run(shape, self._run, bin_seconds)
        self._ordinary = Ordinary(shape.sizes)
        self._long = LongSteps(shape)
        self._of_all, self._of_firsts = Recurring(), Recurring()
        self._executed = self._marks = 0
        self._clocks = []

    def feed(
        self, counters: Integers, ends: Floats, steps: Steps, marked: Booleans | None = None
    ) -> None:
        """Take executed steps of the current run, one or more at a time.

        Args:
            counters: (n,) step counter of each.
            ends: (n,) record clock of the newest record of each.
            steps: their durations.
            marked: (n,) steps that the probe says are special, None where it says nothing.
        """
        run, long = self._run, self._long
        if run is None or long is None:
            raise ValueError("feed() was called before restart(): no run has begun")
        present = np.isfinite(steps.step).sum(axis=(1, 2, 3)) / run.shape.rank_count
        judged = np.flatnonzero(present >= MINIMUM_PRESENCE)
        now = derive(steps.at(judged), run.shape)
        lasted = np.nan_to_num(np.fmax.reduce(steps.step, axis=(1, 2, 3)))
        # Added one by one: the sum of a block depends, in its last digit, on where blocks end.
        seconds = float(np.cumsum(np.append(self.length.seconds, lasted))[-1])
        self.length = Length(self.length.steps + len(counters), seconds)
        row = 0
        for index in range(len(counters)):
            self._clock = max(self._clock, float(ends[index]))
            self._executed += 1
            if row < len(judged) and judged[row] == index:
                special = marked is not None and bool(marked[index])
                self._step(run, long, _Step(now, row, int(counters[index]), special))
                row += 1

    def _step(self, run: Run, long: LongSteps, step: _Step) -> None:
        now, row = step.now, step.row
        duration = float(now.duration[row])
        self._marks += step.marked
        ordinary, written = self._ordinary.judge(now.rest[row], duration)
        if self._executed <= self._warm_up:
            return
        self._began = min(self._began, self._clock)
        if written is not None:
            self._checkpoint(run, step.counter, written)
        if not ordinary or not run.timed(now, row):
            return
        if step.marked and self._marks <= MOST_MARKED * self._executed:
            self._settle()
            self._exception(run, long.describe(now, row), step.counter, self._clock)
            return
        if not run.means and long.is_long(duration):
            self._pending.append((now.only(row), step.counter, self._clock))
            if len(self._pending) <= MOST_IN_A_ROW:
                return
            waiting, self._pending = self._pending, []
            for one, _, clock in waiting:
                self._push(run, long, one, 0, clock)
            return
        self._settle()
        self._push(run, long, now, row, self._clock)

    def _push(self, run: Run, long: LongSteps, now: Quantities, row: int, clock: float) -> None:
        long.learn(now, row)
        if not run.push(now, row):
            return
        self._clocks = [*self._clocks[-15:], clock]
        if run.usable >= FIRST_EVALUATION and run.usable % STRIDE_STEPS == 0:
            self._evaluate(run)

    def _settle(self) -> None:
        """Say of the long steps that were no new pace what they were."""
        run, long = self._run, self._long
        waiting, self._pending = self._pending, []
        if run is None or long is None:
            return
        for now, counter, clock in waiting:
            told = long.describe(now, 0)
            if told.input and told.seconds < FREEZE_SECONDS:
                self._push(run, long, now, 0, clock)  # loader workers deliver together
            else:
                self._exception(run, told, counter, clock)

    def _exception(self, run: Run, step: LongStep, counter: int, clock: float) -> None:
        if step.place < 0:
            regular = step.seconds > 0 and self._of_all.is_regular(counter, step.seconds)
            if step.waited >= FREEZE_SECONDS and step.times >= FREEZE_TIMES:
                self._freeze(run, step, clock)
            elif step.seconds > 0 and (run.known_rest_is_nothing or regular):
                self._checkpoint(run, counter, step.excess)
            return
        regular = step.firsts and self._of_firsts.is_regular(counter, step.seconds)
        if step.housekeeping or (regular and not step.input):
            seconds = self._ordinary.step_seconds()
            usual, slower = self._chores.did(counter, step.seconds, seconds)
            if slower:
                moment = Moment(clock, clock)
                self._ledger.slow_checkpoint(slower, moment, partial(self._nodes, run.shape))
            elif usual:
                self._ledger.good_checkpoint(clock)
            return
        run.pause(step.seconds, step.place)
        if step.seconds >= FREEZE_SECONDS and step.times >= FREEZE_TIMES:
            self._freeze(run, step, clock)

    def _freeze(self, run: Run, step: LongStep, clock: float) -> None:
        kind: FaultClass = "data_loader" if step.input else "host_transient"
        told = step.place >= 0
        seconds, how = (step.seconds, "freeze") if told else (step.waited, "wait")
        ranks = (step.place,) if told else ()
        found = Candidate(kind, 1 - 1 / step.times, ranks, -1, seconds, 0.0, shown_by=how)
        moment = Moment(clock, clock - seconds)
        self._ledger.freeze(self._named(run.shape, found), moment, partial(self._nodes, run.shape))

    def _evaluate(self, run: Run) -> None:
        view = run.view()
        self.known = view.known
        found = [
            self._named(run.shape, candidate)
            for one in CONCLUSIONS
            if one.needs <= view.known
            and (candidate := one.judge(view))
            and _is_a_number(candidate)
        ]
        moment = Moment(self._clock, self._clocks[0], tuple(self._clocks))
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
            named = self._named(run.shape, found)
            self._ledger.slow_checkpoint(named, moment, partial(self._nodes, run.shape))
        elif wrote:
            self._ledger.good_checkpoint(self._clock)

    def _named(self, shape: Shape, found: Candidate) -> Candidate:
        """Return a candidate with global ranks in the place of places."""
        if shape.ranks is None:
            return found
        dealt = found.dealt
        if dealt is not None and dealt.rank >= 0:
            dealt = replace(dealt, rank=shape.named((dealt.rank,))[0])
        return replace(found, ranks=shape.named(found.ranks), dealt=dealt)

    def _nodes(self, shape: Shape, found: Candidate) -> tuple[str, ...]:
        places = shape.place_of(np.array(found.ranks, dtype=np.int64))
        numbers = shape.nodes.ravel()[places]
        names = list(self._node_names)
        return tuple(names[n] if n >= 0 else "unknown" for n in numbers)


def _is_a_number(found: Candidate) -> bool:
    """Say whether what shows a cause is known: where a stage is silent it may not be."""
    return bool(np.isfinite([found.cost, found.observed, found.expected]).all())


@dataclass(frozen=True, slots=True)
class _Step:
    """Row `row` of some quantities; `marked` steps are special, the probe says."""

    now: Quantities
    row: int
    counter: int
    marked: bool
