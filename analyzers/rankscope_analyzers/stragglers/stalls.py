"""Stalls of single steps: what a rank, or a replica under wall timing, takes longer for once.

Most steps have none, and a bound that is worked out for many steps at once shows that. Only the
others are looked at one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median as middle

import numpy as np

from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.numeric.medians import mean, median, typical
from rankscope_analyzers.numeric.peers import NORMAL_CONSISTENCY
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.view import WINDOW_STEPS

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


FEWEST_AT_ONCE = 4
"""Of fewer steps the bound takes longer than to look at each of them."""


@dataclass(frozen=True, slots=True)
class StallSteps:
    """Some steps of a run, and those before that they are compared with.

    Args:
        shape: arrangement of the ranks.
        duration: (m + n,) of the m steps before, fewer than `WINDOW_STEPS`, and of these.
        ratios: (m + n, ...) compute over that of peers, None if it contains no stalls.
        residual: (n, P, D, T) residual beyond the median of the rank's group.
        unit: (n, P) compute of each stage for which a ratio of 1 stands in each step.
    """

    shape: Shape
    duration: Floats
    ratios: Floats | None
    residual: Floats
    unit: Floats

    def may_stall(self) -> Booleans:
        """Return (n,) False for steps in which certainly nobody stalled.

        A stall is either a residual, or a ratio beyond its median over the window, in units.
        """
        count = len(self.residual)
        longest = np.fmax.reduce(self.residual, axis=(1, 2, 3))
        if self.ratios is None:
            return np.asarray(longest > STALL_SECONDS)
        if count < FEWEST_AT_ONCE:
            return np.ones(count, dtype=np.bool_)
        full = min(len(self.duration) - WINDOW_STEPS + 1, count)
        usual, above = np.zeros(count), np.full(count, np.inf)
        if full > 0:
            usual[count - full :] = _middles(self.duration)
            above[count - full :] = self._most_above(self.ratios, full)
        limit = np.maximum(STALL_SHARE * usual, STALL_SECONDS)
        return np.asarray((longest > limit) | (above > limit))

    def _most_above(self, ratios: Floats, full: int) -> Floats:
        """Return (full,) how far the largest ratio is above its median, in seconds."""
        ratios = np.where(np.isfinite(ratios), ratios, np.nan)
        newest = ratios[-full:] - _middles(ratios)
        largest = np.fmax.reduce(newest.reshape(full, -1), axis=1)
        return np.asarray(largest * np.fmax.reduce(self.unit[-full:], axis=1))

    def limit(self, index: int) -> float:
        """Return the length beyond which a stall of a step is one."""
        usual = middle(self.duration[self._window(index)].tolist())
        return max(STALL_SHARE * float(usual), STALL_SECONDS)

    def stalls(self, index: int) -> Floats:
        """Return the stall of each rank (or, under wall timing, replica) in a step.

        Compute measured by the host's clock contains stalls even if it contains no waits.
        """
        residual, unit = self.residual[index], self.unit[index]
        if self.ratios is None:
            return np.asarray(residual)
        excess = self._excess_over_noise(self.ratios[self._window(index)])
        if not self.shape.wall:
            return np.asarray(np.fmax(residual, excess * unit[:, None, None]))
        stall = excess * float(np.fmax.reduce(unit, axis=None))
        flat = self.shape.pipeline == self.shape.tensor == 1
        if flat and self.shape.timing:
            stall = np.fmax(stall, residual.reshape(-1))
        return np.asarray(stall)

    def _window(self, index: int) -> slice:
        last = len(self.duration) - len(self.residual) + index + 1
        return slice(max(0, last - WINDOW_STEPS), last)

    def _excess_over_noise(self, ratios: Floats) -> Floats:
        """Return how much ratios of the newest step exceed their own median, 0 within noise.

        Ratios to zero, of ranks that only waited for a CPU, are ignored.
        """
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


def _middles(values: Floats) -> Floats:
    """Return the medians over all full windows of values, (m + n, ...)."""
    windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW_STEPS, axis=0)
    return median(windows, windows.ndim - 1)[..., 0]


def _noise_around_mean(ratios: Floats) -> float:
    """Return the noise of ratios, (n, ...), by what they differ from the mean of their step.

    Few members are compared with a fast one of them: its own ratio is 1 and has no noise.
    """
    each = ratios.reshape(len(ratios), -1)
    around = each - mean(each, axis=1)[:, np.newaxis]
    apart = typical(np.abs(around - median(around, 0)))
    return NORMAL_CONSISTENCY * apart * each.shape[1] / max(each.shape[1] - 1, 1)
