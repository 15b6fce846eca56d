"""One run between restarts: its newest steps, its baseline and its stalls."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median as middle

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.steps.records import TIMINGS
from rankscope_analyzers.stragglers.baselines import KnownSizes, learned, with_new_pace
from rankscope_analyzers.stragglers.kept_steps import NOT_ALWAYS, kept_steps
from rankscope_analyzers.stragglers.periodic_exchange import PeriodicExchanges
from rankscope_analyzers.stragglers.quantities import Quantities
from rankscope_analyzers.stragglers.recent_rows import RecentRows
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.silent_members import SETTLED_ROWS, SilentMembers
from rankscope_analyzers.stragglers.stalls import StallSteps
from rankscope_analyzers.stragglers.step_averaging import BIN_SECONDS, Means, StepAverager
from rankscope_analyzers.stragglers.view import (
    BASELINE_STEPS,
    BRIEF_SECONDS,
    LONG_STEPS,
    WINDOW_STEPS,
    Baseline,
    Part,
    Spikes,
    View,
)

STRIDE_STEPS = 4
"""Usable steps before each evaluation, a quarter of a window; at the third one there are 12."""

BASELINE_SECONDS = 10.0
"""Seconds of the baseline: 30 short steps are not enough to show their pace."""

SPIKE_STEPS = 128
"""Steps over which stalls are remembered: a noisy host may stall in 3 % of the steps only."""

BRIEF_SPIKE_STEPS = 512
"""The same for brief steps: half a minute at most, as 128 steps of most jobs."""

SOUGHT_SPIKES = 6
"""Stalls that are looked for in `BRIEF_SPIKE_STEPS` of any length while they go on: of a rank that
pauses once in forty steps, three could have hit one of four by chance, and five not."""

KNOWN_SHARE = 0.5
"""Share of the ranks and steps in which a part must be measured to be compared."""

KEPT_STEPS = {
    "replica": LONG_STEPS,
    "transfer": LONG_STEPS,
    "residual": LONG_STEPS,
    "data": LONG_STEPS,
    "compute": WINDOW_STEPS,
    "sync": WINDOW_STEPS,
    "cpu_wait": WINDOW_STEPS,
    "work": WINDOW_STEPS,
    "loader": WINDOW_STEPS,
    "exit_lateness": LONG_STEPS,
}
"""Steps that are kept of each field; `BASELINE_STEPS` of all others."""

KNOWN_BY: Mapping[Part, str] = {
    "data": "data", "compute": "compute", "sync": "sync", "rest": "residual",
    "cpu_wait": "cpu_wait",
}  # fmt: skip
"""Field that shows whether a part of the step is measured."""


TIMED_SHARE, TIMED_STEPS = 0.98, 32
"""Share of the ranks that were timed together in a step that must be timed for the step to be
compared, if some steps are not timed: a slow rank that is missing costs nothing there."""


Stall = tuple[float, tuple[int, ...], int]
"""Length of a step's longest stall, the affected nodes, and the position of the worst rank."""

Spike = tuple[float, tuple[int, ...], int, int]
"""The same with the step's counter."""

NO_STALL: Stall = (0.0, (), -1)


@dataclass(frozen=True, slots=True)
class Advance:
    """Steps that were added to a run.

    Args:
        stalls: the longest stall of each.
        advanced: indices, among all that are being added, of those that completed a row of the
            window.
        is_due: True if the window is to be judged.
    """

    stalls: Sequence[Spike]
    advanced: Sequence[int]
    is_due: bool


class Run:
    """The state of one run; bounded, whatever its length.

    Args:
        shape: arrangement of the ranks.
        before: the run before the restart, which knows what is usual for the job.
        bin_seconds: time over which short steps are averaged.
    """

    __slots__ = (
        "_averager",
        "_raw",
        "_recent",
        "_seconds",
        "_silent",
        "_sizes",
        "_sparse",
        "_spikes",
        "_stall_fields",
        "_timed",
        "baseline",
        "exchanges",
        "means",
        "rest_is_unmeasured",
        "shape",
        "usable",
    )  # fmt: skip

    def __init__(
        self,
        shape: Shape,
        before: Run | None = None,
        bin_seconds: float = BIN_SECONDS,
    ) -> None:
        self.shape = shape
        self._recent: dict[str, RecentRows] = {}
        self._raw: dict[str, RecentRows] = {}
        self._averager = StepAverager(bin_seconds)
        self._silent = SilentMembers(shape.sizes)
        self._timed: deque[float] = deque(maxlen=TIMED_STEPS)
        self._sparse = False
        hosted = shape.timing == TIMINGS["wall"] and not shape.wall
        self._stall_fields: tuple[str, ...] = ("relative",) if hosted else ()
        self._spikes: deque[Spike] = deque(maxlen=BRIEF_SPIKE_STEPS)
        self._sizes: KnownSizes = before._sizes if before else KnownSizes()
        self.baseline = self._sizes.of(shape.sizes)
        self.exchanges = PeriodicExchanges()
        self.usable = 0
        self._seconds, self.means = 0.0, False
        self.rest_is_unmeasured = False

    def is_comparable(self, timed: float) -> bool:
        """Return True if a step can be compared with others.

        If compute is measured only in some steps, as by Flight Recorders and in samples, the steps
        in between are left out: they are no end of a fault. So are those that only a few of the
        ranks have measured, as each decides independently how often it does.

        Args:
            timed: share of the ranks whose compute was timed in the step.
        """
        if not timed:
            self._sparse = bool(self._timed)
            return not self._timed
        self._timed.append(timed)
        return not self._sparse or timed >= TIMED_SHARE * max(self._timed)

    @property
    def newest_stall(self) -> Spike:
        """Return the longest stall of the newest step."""
        return self._spikes[-1]

    def push(self, now: Quantities, rows: Integers, counters: Sequence[int]) -> Iterator[Advance]:
        """Add usable steps; yield whenever the window is due to be judged, and at the end.

        Args:
            now: quantities of steps.
            rows: those of the usable ones.
            counters: of these.
        """
        self.rest_is_unmeasured = not now.rest_is_separate
        counts = now.steps[rows].tolist()
        seconds = (now.duration[rows] * now.steps[rows]).tolist()
        means = list(self._averager.add(kept_steps(now, rows), seconds))
        completing = {index for one in means for index in one.completed_by}
        stalls = self._stall_steps(now, rows)
        may_stall = stalls.may_stall().tolist()
        kept_raw = ("duration", "replica", "residual", *self._stall_fields)
        raw = {name: getattr(now, name)[rows] for name in kept_raw}
        first, newest, advanced = 0, list[Spike](), list[int]()
        for index, counter in enumerate(counters):
            self.means = self.means or counts[index] > 1
            stalled = may_stall[index] and not self.means
            newest.append((*(self._spike(stalls, index) if stalled else NO_STALL), counter))
            self._spikes.append(newest[-1])
            self._seconds += seconds[index]
            if index not in completing:
                continue
            advanced.append(index)
            self.usable += 1
            is_due, knows_start = self.usable % STRIDE_STEPS == 0, self._knows_start()
            if is_due or knows_start:
                self._keep(raw, means, first, index + 1)
                first = index + 1
            if knows_start:
                self._known(
                    learned(self._first(), self.shape, self._sizes.nearest(self.shape.sizes))
                )
            if is_due:
                yield Advance(newest, advanced, is_due=True)
                newest, advanced = [], []
        self._keep(raw, means, first, len(rows))
        yield Advance(newest, advanced, is_due=False)

    def _keep(
        self, raw: Mapping[str, Floats], means: Sequence[Means], first: int, last: int
    ) -> None:
        """Keep the steps from one up to another, and the means that are complete with them."""
        if first == last:
            return
        for name, values in raw.items():
            _extend(self._raw, name, values[first:last], WINDOW_STEPS)
        for one in means:
            complete = slice(*(bisect_left(one.completed_by, index) for index in (first, last)))
            if complete.start == complete.stop:
                continue
            for name, values in one.quantities.items():
                keep = KEPT_STEPS.get(name, BASELINE_STEPS)
                _extend(self._recent, name, values[complete], keep)
            self._look_for_silence(one.quantities["sync"][complete])

    def _look_for_silence(self, sync: Floats) -> None:
        """Take note of the ranks that are silent in the newest rows, (n, P, D, T) each."""
        known = np.isfinite(sync)
        if known.all():
            known = known[-1:]  # each row says the same
        for later in reversed(range(len(known))):
            transfer = self._recent["transfer"].last(2 * SETTLED_ROWS + later)
            self._silent.update(known[-1 - later], transfer[: len(transfer) - later])

    def _knows_start(self) -> bool:
        """Return True once the first steps show what is usual, which is not known yet."""
        if self.baseline is not None:
            return False
        return self._seconds >= BASELINE_SECONDS and self.usable >= BASELINE_STEPS

    def add_pause(self, seconds: float, position: int, counter: int = -1) -> None:
        """Remember a step that one rank made too long to be compared."""
        node = int(self.shape.nodes.ravel()[position])
        self._spikes.append((seconds, (node,) if node >= 0 else (), position, counter))

    def forget_stalls(self) -> None:
        """Discard the stalls so far: they belong to a fault of another class."""
        self._spikes.clear()

    def view(self, housekeeping: Collection[int] = ()) -> View:
        """Return the newest steps as a view for the checks.

        Args:
            housekeeping: counters of steps whose stall was rank 0's own work.
        """
        newest = {name: recent.last(WINDOW_STEPS) for name, recent in self._recent.items()}
        count = len(newest["duration"])
        newest = {name: values for name, values in newest.items() if len(values) == count}
        known = frozenset(
            part
            for part, field in KNOWN_BY.items()
            if field in newest and _known_share(newest[field], part) >= KNOWN_SHARE
        )
        return View(
            shape=self.shape,
            baseline=self._baseline_of_reporting(),
            spikes=self._spike_arrays(housekeeping),
            step_seconds=float(newest["duration"].mean()),
            exit_lateness_long=self._recent["exit_lateness"].last(LONG_STEPS)
            if "exit_lateness" in newest
            else None,
            data_long=self._recent["data"].last(LONG_STEPS),
            replica_long=self._recent["replica"].last(LONG_STEPS),
            transfer_long=self._recent["transfer"].last(LONG_STEPS),
            residual_long=self._recent["residual"].last(LONG_STEPS),
            means=self.means,
            known=known,
            periodic_waits=self.exchanges.waits_per_step(self.newest_stall[3]),
            **(dict.fromkeys(NOT_ALWAYS) | newest),  # type: ignore[arg-type]
        )

    def _baseline_of_reporting(self) -> Baseline | None:
        """Return what is usual, with exchanges as long as they became when members fell silent."""
        usual, rise = self.baseline, self._silent.rise
        if usual is None or not rise.any():
            return usual
        return replace(usual, transfer=usual.transfer + rise)

    def take_new_pace(self) -> None:
        """From now on, compare with the compute time of the newest steps."""
        if self.baseline is not None:
            self._known(with_new_pace(self.baseline, self._first(), self.shape))

    def _known(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self._sizes.add(self.shape.sizes, baseline)

    def _first(self) -> dict[str, Floats]:
        """Return the newest steps, at the start of a run its first ones."""
        return {name: recent.last(BASELINE_STEPS) for name, recent in self._recent.items()}

    def _stall_steps(self, now: Quantities, rows: Integers) -> StallSteps:
        """Return steps with those before them, for the search for stalls."""

        def with_earlier(name: str) -> Floats:
            newest: Floats = getattr(now, name)[rows]
            if name not in self._raw:
                return newest
            return np.concatenate([self._raw[name].last(WINDOW_STEPS - 1), newest])

        compared = ("replica",) if self.shape.wall else self._stall_fields
        ratios = with_earlier(compared[0]) if compared else None
        return StallSteps(
            self.shape, with_earlier("duration"), ratios, now.residual[rows], now.unit[rows]
        )

    def _spike(self, steps: StallSteps, index: int) -> Stall:
        """Return the longest stall of a step, the affected nodes and the worst rank."""
        stall = steps.stalls(index)
        struck = np.asarray(stall > steps.limit(index))
        if not struck.any():
            return NO_STALL
        if self.shape.wall:
            replica = int(np.nanargmax(stall))
            ranks = self.shape.replica(replica)
            if len(self._spikes) > 1 and self._spikes[-1][2] == self._spikes[-2][2] == ranks[0]:
                return 0.0, (), int(ranks[0])  # the third slow step in a row is no sporadic stall
            nodes = np.unique(self.shape.nodes.ravel()[ranks])
            return float(stall[replica]), tuple(nodes[nodes >= 0].tolist()), int(ranks[0])
        nodes = np.unique(self.shape.nodes[struck])
        return float(np.nanmax(stall)), tuple(nodes[nodes >= 0].tolist()), int(np.nanargmax(stall))

    def _spike_arrays(self, housekeeping: Collection[int]) -> Spikes:
        brief = middle(self._raw["duration"].last(WINDOW_STEPS).tolist()) < BRIEF_SECONDS
        known = [
            (index, spike)
            for index, spike in enumerate(self._spikes)
            if spike[2] >= 0 and spike[3] not in housekeeping
        ]
        stalled = [index for index, spike in known if spike[0] > 0]
        count = len(self._spikes)
        first = max(count - (BRIEF_SPIKE_STEPS if brief else SPIKE_STEPS), 0)
        if stalled and stalled[-1] >= first:
            first = min(first, stalled[-SOUGHT_SPIKES:][0])
        longest, worst = np.zeros(count - first), np.full(count - first, -1.0)
        struck: list[int] = []
        for index, (seconds, nodes, position, _) in known:
            if index >= first:
                longest[index - first], worst[index - first] = seconds, position
                struck += nodes
        size = self.shape.nodes.max(initial=0) + 1
        per_node = np.bincount(np.array(struck, dtype=np.int64), minlength=size)
        return Spikes(longest, per_node, worst)


def _known_share(values: Floats, part: Part) -> float:
    """Return the share of the ranks and steps in which a part is measured.

    Of input, it is that of the ranks which load any: some load for others, which wait for them in a
    broadcast and fetch nothing themselves.
    """
    known = np.isfinite(values)
    if part == "data":
        known = known[:, known.any(axis=0)]
    return np.count_nonzero(known) / max(known.size, 1)


def _extend(fields: dict[str, RecentRows], name: str, values: Floats, keep: int) -> None:
    recent = fields.get(name)
    if recent is None:
        recent = fields[name] = RecentRows(keep, values.shape[1:])
    recent.extend(values)
