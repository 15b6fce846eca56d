"""The incremental straggler detector: steps in, incidents out, in bounded memory.

The result after a step depends only on that step and earlier ones, so that a trace that is cut at
the time of a verdict gives the same verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.numeric.medians import mean, zero_if_missing
from rankscope_analyzers.stragglers.baselines import is_new_pace
from rankscope_analyzers.stragglers.cause_selection import hides_stalls
from rankscope_analyzers.stragglers.checks import CHECKS
from rankscope_analyzers.stragglers.incident_tracker import IncidentTracker
from rankscope_analyzers.stragglers.incidents import Incident, Moment
from rankscope_analyzers.stragglers.judged_steps import JudgedSteps, Step, UsableSteps
from rankscope_analyzers.stragglers.long_steps import (
    MOST_IN_A_ROW,
    LongStep,
    LongSteps,
    RecurringSteps,
)
from rankscope_analyzers.stragglers.node_numbers import names_of, numbered
from rankscope_analyzers.stragglers.quantities import Quantities, Steps, derive
from rankscope_analyzers.stragglers.rank_zero_work import RankZeroWaits, RankZeroWork
from rankscope_analyzers.stragglers.returning_stage import ReturningStages
from rankscope_analyzers.stragglers.run import STRIDE_STEPS, Run
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.special_steps import CheckpointHistory, SpecialStepFilter
from rankscope_analyzers.stragglers.step_averaging import BIN_SECONDS
from rankscope_analyzers.stragglers.view import COST_STEPS, WINDOW_STEPS, Candidate, Part

WARM_UP_STEPS = 12
"""Steps after each start that are slow on healthy hardware: allocation, autotuning, caches."""

WARM_UP_SHARE = 0.25
"""At most this share of a run counts as warm-up, so that a short one can be judged at all."""

FEWEST_BINS = 48
"""Minimum number of bins of a short run: three windows."""

MINIMUM_PRESENCE = 0.5
"""Share of the ranks that must report a step for its median to be trusted."""

NUMBERS_AT_ONCE = 4096
"""Times of ranks that are compared at once: with more, calls of numpy are not what it costs."""

FREEZE_SECONDS, FREEZE_TIMES = 5.0, 20.0
"""Pause of a rank, in seconds and in usual steps, that is reported even if it happens once."""


MAXIMUM_MARKED = 0.3
"""Share of the steps that may be marked as special: if more are, that is how the job works."""


@dataclass(frozen=True, slots=True)
class RunLength:
    """Length of a run: a short one has a shorter warm-up and is averaged less."""

    steps: int
    seconds: float

    @property
    def is_short(self) -> bool:
        """Return True if the run is too short for the usual warm-up and averages."""
        return (
            self.steps * WARM_UP_SHARE < WARM_UP_STEPS or self.seconds < FEWEST_BINS * BIN_SECONDS
        )


EMPTY_LENGTH = RunLength(0, 0.0)


class Detector:
    """Finds the incidents of one job from its steps, in order."""

    __slots__ = (
        "_checkpoints",
        "_clock",
        "_clocks",
        "_executed",
        "_first_judged_at",
        "_long_for_all",
        "_long_for_rank_zero",
        "_long_steps",
        "_longest_marked",
        "_marked_count",
        "_node_names",
        "_pending",
        "_rank_zero_work",
        "_returning_stages",
        "_run",
        "_special_steps",
        "_tracker",
        "_warm_up",
        "known",
        "length",
        "new_pace",
    )  # fmt: skip

    def __init__(self) -> None:
        self._node_names: dict[str, int] = {}
        self._tracker = IncidentTracker()
        self._checkpoints = CheckpointHistory()
        self._rank_zero_work = RankZeroWork()
        self._returning_stages = ReturningStages()
        self._run: Run | None = None
        self._special_steps = SpecialStepFilter((1, 1, 1))
        self._long_steps: LongSteps | None = None
        self._long_for_all, self._long_for_rank_zero = RecurringSteps(), RecurringSteps()
        self._pending: list[tuple[Quantities, int, float]] = []
        self._executed = self._marked_count = 0
        self._longest_marked = 0.0
        self._clock = 0.0
        self._warm_up = WARM_UP_STEPS
        self._first_judged_at = np.inf
        self._clocks: list[float] = []
        self.known: frozenset[Part] = frozenset()
        self.length = EMPTY_LENGTH
        self.new_pace: tuple[float, float, float] | None = None

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Return the incidents so far, in order of detection."""
        return self._tracker.incidents

    @property
    def awaits(self) -> bool:
        """Return True if the next step decides what the newest ones were."""
        return bool(self._pending)

    def finish(self) -> None:
        """End the input: long steps at the end were exceptions."""
        self._classify_pending()

    def latest_incidents(self) -> tuple[Incident, ...]:
        """Return the incidents as of the newest step, those of short jobs too; change nothing."""
        if (run := self._run) is None or not self._clocks:
            return self.incidents
        moment = Moment(self._clocks[-1], self._clocks[0], tuple(self._clocks))
        observed = moment.now - float(self._first_judged_at)
        return self._tracker.latest_incidents(observed, moment, partial(self._nodes_of, run.shape))

    @property
    def rank_zero_waits(self) -> RankZeroWaits:
        """Return how long all ranks waited for rank 0."""
        return self._rank_zero_work.waits

    def node_numbers(self, names: Sequence[str]) -> Integers:
        """Return the numbers of nodes in shapes, -1 for those beyond the limit."""
        return numbered(self._node_names, names)

    def start_run(self, shape: Shape, length: RunLength | None = None) -> None:
        """Start a run: the first one, or one after a restart.

        Args:
            shape: how its ranks are arranged.
            length: of the known steps if they may be all; None for a run that continues.
        """
        self._classify_pending()
        self._warm_up, bin_seconds = WARM_UP_STEPS, BIN_SECONDS
        if length is not None:
            self._warm_up = min(WARM_UP_STEPS, int(length.steps * WARM_UP_SHARE))
            bin_seconds = min(BIN_SECONDS, length.seconds / FEWEST_BINS)
        if self._run is not None and not self._run.shape.is_placed_like(shape):
            self._tracker.end_moved(partial(self._names_of, shape))
        self._run = Run(shape, self._run, bin_seconds)
        self._special_steps = SpecialStepFilter(shape.sizes)
        self._long_steps = LongSteps(shape)
        self._returning_stages = ReturningStages()
        self._long_for_all, self._long_for_rank_zero = RecurringSteps(), RecurringSteps()
        self._executed = self._marked_count = 0
        self._longest_marked = 0.0
        self._first_judged_at = np.inf
        self._clocks = []

    def feed(
        self, counters: Integers, ends: Floats, steps: Steps, marked: Booleans | None = None
    ) -> None:
        """Process executed steps of the current run, one or more at a time.

        Args:
            counters: (n,) step counter of each.
            ends: (n,) record clock of the newest record of each.
            steps: their durations.
            marked: (n,) steps that the probe marked as special, None if it marks none.
        """
        run, long = self._run, self._long_steps
        if run is None or long is None:
            raise ValueError("feed() was called before start_run(): no run has begun")
        if not len(counters):
            return
        present = np.isfinite(steps.step).sum(axis=(1, 2, 3)) / run.shape.rank_count
        judged = np.flatnonzero(present >= MINIMUM_PRESENCE)
        now = derive(steps.at(judged), run.shape)
        lasted = zero_if_missing(np.fmax.reduce(steps.step, axis=(1, 2, 3)))
        # Added one by one: the sum of a block depends, in its last digit, on where blocks end.
        seconds = float(np.cumsum(np.append(self.length.seconds, lasted))[-1])
        self.length = RunLength(self.length.steps + len(counters), seconds)
        clocks = np.fmax.accumulate(np.append(self._clock, ends))[1:]
        found = JudgedSteps(
            now, counters[judged], clocks[judged], self._executed + 1 + judged,
            np.zeros(len(judged), dtype=np.bool_) if marked is None else marked[judged],
            max(STRIDE_STEPS, NUMBERS_AT_ONCE // run.shape.world),
        )  # fmt: skip
        for row, step in enumerate(found.each()):
            self._step(run, long, found, row, step)
        self._push_waiting(run, long, found, float(clocks[-1]))
        self._executed += len(counters)

    def _step(self, run: Run, long: LongSteps, found: JudgedSteps, row: int, step: Step) -> None:
        """Judge a step. Those that can be compared wait, to be pushed together."""
        self._marked_count += step.marked
        ordinary, written = self._special_steps.judge(found.now.rest[row], step.duration)
        if step.executed <= self._warm_up:
            return
        self._first_judged_at = min(self._first_judged_at, step.clock)
        if written is not None:
            self._push_waiting(run, long, found, step.clock)
            self._checkpoint(run, step.counter, written)
        if not ordinary or not run.is_comparable(step.timed):
            return
        if step.marked and self._marked_count <= MAXIMUM_MARKED * step.executed:
            self._push_waiting(run, long, found, step.clock)
            self._classify_pending()
            self._take_marked_step(run, long.describe(found.now, row), step.counter)
        elif not run.means and long.is_long(step.duration):
            self._push_waiting(run, long, found, step.clock)
            self._pending.append((found.now.single_step(row), step.counter, step.clock))
            if len(self._pending) > MOST_IN_A_ROW:
                pending, self._pending = self._pending, []
                for one in pending:
                    self._push_late(run, long, *one)
        else:
            if self._pending:  # then nothing waits
                self._clock = step.clock
                self._classify_pending()
            long.add_duration(step.duration)
            found.waiting.append(row)
            if len(found.waiting) >= found.most_at_once or (step.averages > 1 and not run.means):
                self._push_waiting(run, long, found, step.clock)

    def _push_waiting(self, run: Run, long: LongSteps, found: JudgedSteps, clock: float) -> None:
        """Push the steps that wait, each as of its own end, and go on to a later moment."""
        if found.waiting:
            self._push(run, long, found.usable())
        self._clock = clock

    def _push_late(
        self, run: Run, long: LongSteps, now: Quantities, counter: int, clock: float
    ) -> None:
        """Push a step that was pending until now."""
        long.add_duration(float(now.duration[0]))
        first = np.zeros(1, dtype=np.int64)
        self._push(run, long, UsableSteps(now, first, [counter], [clock], [self._clock]))

    def _push(self, run: Run, long: LongSteps, steps: UsableSteps) -> None:
        long.learn(steps.now, steps.rows)
        for part in run.push(steps.now, steps.rows, steps.counters):
            for stalled, _, position, counter in part.stalls:
                if stalled > 0 and long.is_rank_zero(position):
                    self._rank_zero_work.add_stall(counter, stalled)
            newest = (steps.clocks[index] for index in part.advanced)
            self._clocks = [*self._clocks, *newest][-WINDOW_STEPS:]
            if part.is_due:
                self._clock = steps.judged_at[part.advanced[-1]]
                self._evaluate(run)

    def _classify_pending(self) -> None:
        """Classify the pending long steps, which turned out not to be a new pace."""
        run, long = self._run, self._long_steps
        pending, self._pending = self._pending, []
        if run is None or long is None:
            return
        for now, counter, clock in pending:
            long_step = long.describe(now, 0)
            of_all = long_step.position < 0 and long_step.times < FREEZE_TIMES
            if long_step.input and (of_all or long_step.seconds < FREEZE_SECONDS):
                self._push_late(run, long, now, counter, clock)  # workers deliver together
            else:
                self._take_long_step(run, long_step, counter, clock)

    def _take_marked_step(self, run: Run, step: LongStep, counter: int) -> None:
        """Process an evaluation: each rank may take as long as ranks have taken before."""
        longest = self._longest_marked or np.inf
        self._longest_marked = max(self._longest_marked, step.seconds)
        self._take_long_step(run, step, counter, self._clock, longest)

    def _take_long_step(
        self, run: Run, step: LongStep, counter: int, clock: float, usual: float = 0.0
    ) -> None:
        """Process a step that is longer than others.

        Args:
            run: the current run.
            step: the long step.
            counter: its step counter.
            clock: of its end.
            usual: seconds that one rank may make such a step long.
        """
        if step.position < 0:
            self._take_joint_step(run, step, counter, clock)
            return
        regular = step.by_rank_zero and self._long_for_rank_zero.is_regular(counter, step.seconds)
        if step.housekeeping or (regular and not step.input):
            seconds = self._special_steps.step_seconds()
            usual, slower = self._rank_zero_work.add(counter, step.seconds, seconds)
            if slower:
                self._open_slow_checkpoint(run.shape, slower, clock)
            elif usual:
                self._tracker.close_slow_checkpoint()
            return
        # What others do as well, in that step or in such steps, is unequal work, as of rollouts.
        if not usual and not step.by_most:
            run.add_pause(step.seconds, step.position, counter)
            if step.by_rank_zero:
                self._rank_zero_work.add_stall(counter, step.seconds)
        usual = max(usual, step.by_next)
        stood_still = step.seconds >= max(FREEZE_SECONDS, FREEZE_TIMES * usual)
        if stood_still and step.times >= FREEZE_TIMES:
            self._freeze(run, step, clock)

    def _take_joint_step(self, run: Run, step: LongStep, counter: int, clock: float) -> None:
        """Process a long step that no single rank made long."""
        if not step.seconds and run.exchanges.add(counter, step.waits):
            return
        regular = step.seconds > 0 and self._long_for_all.is_regular(counter, step.seconds)
        if step.waited >= FREEZE_SECONDS and step.times >= FREEZE_TIMES:
            self._freeze(run, step, clock)
        elif step.seconds > 0 and (run.rest_is_unmeasured or regular):
            self._checkpoint(run, counter, step.excess)

    def _freeze(self, run: Run, step: LongStep, clock: float) -> None:
        kind: FaultClass = "data_loader" if step.input else "host_transient"
        is_known = step.position >= 0
        seconds, how = (step.seconds, "freeze") if is_known else (step.waited, "wait")
        ranks = (step.position,) if is_known else ()
        candidate = Candidate(kind, 1 - 1 / step.times, ranks, -1, seconds, 0.0, shown_by=how)
        moment = Moment(clock, clock - seconds)
        self._tracker.add_freeze(
            candidate.with_global_ranks(run.shape),
            moment,
            partial(self._nodes_of, run.shape),
        )

    def _evaluate(self, run: Run) -> None:
        view = run.view(self._rank_zero_work.regular_stalls)
        self.known = view.known
        found = [
            candidate
            for one in CHECKS
            if one.needs <= view.known and (candidate := one.check(view)) and _is_finite(candidate)
        ]
        candidates = [
            one.with_global_ranks(run.shape) for one in self._returning_stages.judge(view, found)
        ]
        lasted = float(mean(view.duration[-COST_STEPS:]))
        moment = Moment(self._clock, self._clocks[0], tuple(self._clocks), lasted)
        nodes = partial(self._nodes_of, run.shape)
        self._tracker.update(candidates, run.shape.contents, moment, nodes, view.is_silent)
        current = self._tracker.open
        if current and is_new_pace(current, self._clock):
            run.take_new_pace()
            self.new_pace = (current.since, current.observed, current.expected)
        if current and hides_stalls(current, run.shape.contents):
            run.forget_stalls()

    def _checkpoint(self, run: Run, counter: int, written: Floats) -> None:
        seconds = self._special_steps.step_seconds()
        wrote, candidate = self._checkpoints.add(counter, written, run.shape, seconds)
        if candidate:
            with_ranks = candidate.with_global_ranks(run.shape)
            self._open_slow_checkpoint(run.shape, with_ranks, self._clock)
        elif wrote:
            self._tracker.close_slow_checkpoint()

    def _open_slow_checkpoint(self, shape: Shape, candidate: Candidate, clock: float) -> None:
        began = max(clock - candidate.lasted_seconds, min(self._first_judged_at, clock))
        moment = Moment(clock, began)
        self._tracker.open_slow_checkpoint(candidate, moment, partial(self._nodes_of, shape))

    def _nodes_of(self, shape: Shape, candidate: Candidate) -> tuple[str, ...]:
        return self._names_of(shape, candidate.ranks)

    def _names_of(self, shape: Shape, ranks: tuple[int, ...]) -> tuple[str, ...]:
        return names_of(self._node_names, shape, ranks)


def _is_finite(candidate: Candidate) -> bool:
    """Return True if a candidate's values are known: with a silent stage they may not be."""
    return bool(np.isfinite([candidate.cost, candidate.observed, candidate.expected]).all())
