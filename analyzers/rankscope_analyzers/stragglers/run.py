"""One run between restarts: its newest steps, its baseline and its stalls."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from statistics import median as middle

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.medians import mean, median, typical
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.steps.records import TIMINGS
from rankscope_analyzers.stragglers.baselines import KnownSizes, learned, with_new_pace
from rankscope_analyzers.stragglers.periodic_exchange import PeriodicExchanges
from rankscope_analyzers.stragglers.quantities import Quantities
from rankscope_analyzers.stragglers.recent_rows import RecentRows
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.silent_members import SETTLED_ROWS, SilentMembers
from rankscope_analyzers.stragglers.step_averaging import BIN_SECONDS, StepAverager
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

BASELINE_SECONDS = 10.0
"""Seconds of the baseline: 30 short steps are not enough to show their pace."""

SPIKE_STEPS = 128
"""Steps over which stalls are remembered: a noisy host may stall in 3 % of the steps only."""

BRIEF_SPIKE_STEPS = 512
"""The same for brief steps: half a minute at most, as 128 steps of most jobs."""

SOUGHT_SPIKES = 6
"""Stalls that are looked for in `BRIEF_SPIKE_STEPS` of any length while they go on: of a rank that
pauses once in forty steps, three could have hit one of four by chance, and five not."""

STALL_SHARE = 0.05
"""Share of the step time; shorter stalls hide in the noise of the others."""

STALL_SECONDS = 0.003
"""Time slice of a process on a shared core: the base slice of Linux's scheduler."""

STALL_SIGMAS = 5.0
"""Standard deviations: stalls that hide in compute must also exceed the noise of replicas."""

LASTING_STEPS = 3
"""Steps in a row in which a rank computes longer that are no sporadic stall, but a slower rank."""

EVEN_SHARE = 0.5
"""Fraction of the largest excess by which another one is below its usual value: unequal work makes
some replicas faster and others slower, but a stall makes none faster."""

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

NOT_ALWAYS = ("cpu_wait", "work", "exit_lateness", "weights", "loader")
"""Fields that not all jobs have."""

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

    def is_comparable(self, now: Quantities, index: int) -> bool:
        """Return True if a step can be compared with others.

        If compute is measured only in some steps, as by Flight Recorders and in samples, the steps
        in between are left out: they are no end of a fault. So are those that only a few of the
        ranks have measured, as each decides independently how often it does.
        """
        known = float(np.isfinite(now.compute[index]).mean())
        if not known:
            self._sparse = bool(self._timed)
            return not self._timed
        self._timed.append(known)
        return not self._sparse or known >= TIMED_SHARE * max(self._timed)

    @property
    def newest_stall(self) -> Spike:
        """Return the longest stall of the newest step."""
        return self._spikes[-1]

    def push(self, now: Quantities, index: int, counter: int = -1) -> bool:
        """Add a usable step, row `index` of `now`; return True if the window advanced."""
        row = _row(now, index)
        self.rest_is_unmeasured = not now.rest_is_separate
        for name in ("duration", "replica", "residual", *self._stall_fields):
            _push(self._raw, name, row[name], WINDOW_STEPS)
        seconds, steps = float(now.duration[index]), float(now.steps[index])
        self.means = self.means or steps > 1
        self._spikes.append((*(NO_STALL if self.means else self._spike(now.unit[index])), counter))
        self._seconds += seconds * steps
        full = self._averager.add(row, seconds, steps)
        if full is None:
            return False
        for name, value in full.items():
            _push(self._recent, name, value, KEPT_STEPS.get(name, BASELINE_STEPS))
        transfer = self._recent["transfer"].last(2 * SETTLED_ROWS)
        self._silent.update(np.isfinite(full["sync"]), transfer)
        self.usable += 1
        old = self._seconds >= BASELINE_SECONDS and self.usable >= BASELINE_STEPS
        if old and self.baseline is None:
            self._known(learned(self._first(), self.shape, self._sizes.nearest(self.shape.sizes)))
        return True

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
            if field in newest and float(np.isfinite(newest[field]).mean()) >= KNOWN_SHARE
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

    def _spike(self, unit: Floats) -> Stall:
        """Return the longest stall of the newest step, the affected nodes and the worst rank."""
        stall = self._stalls(unit)
        usual = middle(self._raw["duration"].last(WINDOW_STEPS).tolist())
        struck = np.asarray(stall > max(STALL_SHARE * usual, STALL_SECONDS))
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

    def _stalls(self, unit: Floats) -> Floats:
        """Return the stall of each rank (or, under wall timing, replica) in the newest step.

        Args:
            unit: (P,) compute of each stage for which a ratio of 1 stands in this step.

        Compute measured by the host's clock contains stalls even if it contains no waits.
        """
        residual = self._raw["residual"].last(1)[0]
        if not self.shape.wall:
            if not self._stall_fields:
                return np.asarray(residual)
            own = self._excess_over_noise("relative") * unit[:, None, None]
            return np.asarray(np.fmax(residual, own))
        stall = self._excess_over_noise("replica") * float(np.fmax.reduce(unit, axis=None))
        flat = self.shape.pipeline == self.shape.tensor == 1
        if flat and self.shape.timing:
            stall = np.fmax(stall, residual.reshape(-1))
        return np.asarray(stall)

    def _excess_over_noise(self, name: str) -> Floats:
        """Return how much ratios of the newest step exceed their own median, 0 within noise.

        Ratios to zero, of ranks that only waited for a CPU, are ignored.
        """
        ratios = self._raw[name].last(WINDOW_STEPS)
        ratios = np.where(np.isfinite(ratios), ratios, np.nan)
        middles = median(ratios, 0)[0]
        newest = ratios[-1] - middles
        longest, shortest = np.fmax.reduce(newest, axis=None), np.fmin.reduce(newest, axis=None)
        if -shortest > EVEN_SHARE * longest:
            return np.zeros_like(newest)
        noise = NORMAL_CONSISTENCY * typical(np.abs(ratios - middles))
        if self.shape.has_few_peers:
            noise = max(noise, _noise_around_mean(ratios))
        late = ratios[-LASTING_STEPS:] - middles > STALL_SIGMAS * noise
        sporadic = late[-1] & ~(late.all(axis=0) & (len(late) == LASTING_STEPS))
        return np.asarray(np.where(sporadic, newest, 0.0))

    def _spike_arrays(self, housekeeping: Collection[int]) -> Spikes:
        brief = middle(self._raw["duration"].last(WINDOW_STEPS).tolist()) < BRIEF_SECONDS
        known = [NO_STALL if spike[3] in housekeeping else spike[:3] for spike in self._spikes]
        stalled = [index for index, stall in enumerate(known) if stall[0] > 0]
        first = max(len(known) - (BRIEF_SPIKE_STEPS if brief else SPIKE_STEPS), 0)
        if stalled and stalled[-1] >= first:
            first = min(first, stalled[-SOUGHT_SPIKES:][0])
        newest = known[first:]
        struck = [node for _, nodes, _ in newest for node in nodes]
        nodes = np.bincount(
            np.array(struck, dtype=np.int64), minlength=self.shape.nodes.max(initial=0) + 1
        )
        longest = np.array([spike[0] for spike in newest])
        worst = np.array([spike[2] for spike in newest], dtype=np.float64)
        return Spikes(longest, nodes, worst)


def _noise_around_mean(ratios: Floats) -> float:
    """Return the noise of ratios, (n, ...), by what they differ from the mean of their step.

    Few members are compared with a fast one of them: its own ratio is 1 and has no noise.
    """
    each = ratios.reshape(len(ratios), -1)
    around = each - mean(each, axis=1)[:, np.newaxis]
    apart = typical(np.abs(around - median(around, 0)))
    return NORMAL_CONSISTENCY * apart * each.shape[1] / max(each.shape[1] - 1, 1)


def _row(now: Quantities, index: int) -> dict[str, Floats]:
    """Return one step's values of the fields that are kept."""
    row = {
        name: getattr(now, name)[index]
        for name in (
            "duration", "relative", "replica", "stage", "data", "data_median", "transfer",
            "residual", "compute", "input", "sync",
        )
    }  # fmt: skip
    for name in NOT_ALWAYS:
        values = getattr(now, name)
        if values is not None:
            row[name] = values[index]
    return row


def _push(fields: dict[str, RecentRows], name: str, value: Floats, keep: int) -> None:
    recent = fields.get(name)
    if recent is None:
        recent = fields[name] = RecentRows(keep, np.shape(value))
    recent.push(value)
