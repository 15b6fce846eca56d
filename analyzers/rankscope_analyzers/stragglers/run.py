"""One run between restarts: its newest steps, its baseline and its special steps."""

from __future__ import annotations

from collections import deque
from statistics import median as middle

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.medians import median, spread, typical
from rankscope_analyzers.stragglers.history import Recent
from rankscope_analyzers.stragglers.quantities import Quantities
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.uneven_work import within_steps
from rankscope_analyzers.stragglers.view import (
    LONG_STEPS,
    WINDOW_STEPS,
    Baseline,
    Spikes,
    View,
)

BASELINE_STEPS = 30
"""Usable steps at the start of a run that stand for its health."""

SPIKE_STEPS = 128
"""Steps over which stalls are remembered: a noisy host may stall in 3 % of the steps only."""

STALL_SHARE = 0.05
"""Share of the step time; shorter stalls hide in the noise of the others."""

STALL_SIGMAS = 5.0
"""Stalls must stick out of the noise of replicas too, where they hide in compute."""

FIELDS = ("relative", "replica", "stage", "data", "transfer", "residual", "compute")
SCALARS = ("duration", "data_median")

KEPT_STEPS = {
    "replica": LONG_STEPS,
    "transfer": LONG_STEPS,
    "residual": LONG_STEPS,
    "data": WINDOW_STEPS,
    "compute": WINDOW_STEPS,
}
"""Steps that something looks at, of fields other than those of the baseline's `BASELINE_STEPS`."""


class Run:
    """The state of one run; bounded, whatever its length.

    Args:
        shape: arrangement of the ranks.
        node_count: number of nodes that `shape.nodes` counts.
        before: the run before the restart; if it had the same size, its start stays the baseline.
    """

    __slots__ = ("_node_count", "_recent", "_spikes", "baseline", "inherited", "shape", "usable")

    def __init__(self, shape: Shape, node_count: int, before: Run | None = None) -> None:
        pipeline, replicas, tensor = shape.sizes
        shapes: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(SCALARS, ()),
            **dict.fromkeys(FIELDS, shape.sizes),
            "replica": (replicas,),
            "stage": (pipeline,),
            "transfer": (pipeline, tensor),
        }
        self.shape = shape
        self._recent = {
            name: Recent(KEPT_STEPS.get(name, BASELINE_STEPS), size)
            for name, size in shapes.items()
        }
        self._node_count = node_count
        self._spikes: deque[tuple[float, tuple[int, ...], int]] = deque(maxlen=SPIKE_STEPS)
        same = before is not None and before.shape.sizes == shape.sizes
        self.baseline: Baseline | None = before.baseline if before and same else None
        known = before.baseline or before.inherited if before else None
        alike = known is not None and known.transfer.shape == (pipeline, tensor)
        self.inherited: Baseline | None = known if alike else None
        self.usable = 0

    def push(self, now: Quantities, index: int) -> None:
        """Add a usable step: row `index` of some quantities."""
        for name, recent in self._recent.items():
            recent.push(getattr(now, name)[index])
        self._spikes.append(self._spike())
        self.usable += 1
        if self.usable == BASELINE_STEPS and self.baseline is None:
            self.baseline = self._learn()

    def forget_stalls(self) -> None:
        """Drop the stalls so far: they belong to a fault of another class."""
        self._spikes.clear()

    def view(self) -> View:
        """Return what the newest steps look like."""
        newest = {name: recent.last(WINDOW_STEPS) for name, recent in self._recent.items()}
        return View(
            shape=self.shape,
            baseline=self.baseline,
            spikes=self._spike_arrays(),
            step_seconds=float(newest["duration"].mean()),
            replica_long=self._recent["replica"].last(LONG_STEPS),
            transfer_long=self._recent["transfer"].last(LONG_STEPS),
            residual_long=self._recent["residual"].last(LONG_STEPS),
            **newest,
        )

    def _learn(self) -> Baseline:
        """Return the baseline; links and storage are those from before an elastic restart."""
        first = {name: recent.last(BASELINE_STEPS) for name, recent in self._recent.items()}
        old = self.inherited
        pace = median(first["stage"], 1)[:, 0]
        transfer = median(first["transfer"], 0)[0]
        return Baseline(
            relative=median(first["relative"], 0)[0],
            replica=median(first["replica"], 0)[0],
            replica_spread=within_steps(first["replica"], self.shape.wall),
            stage=median(first["stage"], 0)[0],
            stage_noise=float(spread(pace / typical(pace))),
            transfer=old.transfer if old else transfer,
            transfer_noise=old.transfer_noise if old else spread(first["transfer"]),
            data=old.data if old else typical(first["data_median"]),
        )

    def _spike(self) -> tuple[float, tuple[int, ...], int]:
        """Return the longest stall of the newest step, the nodes struck and the worst rank."""
        stall = self._stalls()
        limit = STALL_SHARE * middle(self._recent["duration"].last(WINDOW_STEPS).tolist())
        struck = np.asarray(stall > limit)
        if not struck.any():
            return 0.0, (), -1
        if self.shape.wall:
            replica = int(np.nanargmax(stall))
            ranks = self.shape.replica(replica)
            if len(self._spikes) > 1 and self._spikes[-1][2] == self._spikes[-2][2] == ranks[0]:
                return 0.0, (), int(ranks[0])  # the third slow step in a row is no sporadic stall
            nodes = np.unique(self.shape.nodes.ravel()[ranks])
            return float(stall[replica]), tuple(nodes[nodes >= 0].tolist()), int(ranks[0])
        nodes = np.unique(self.shape.nodes[struck])
        return float(np.nanmax(stall)), tuple(nodes[nodes >= 0].tolist()), int(np.nanargmax(stall))

    def _stalls(self) -> Floats:
        """Return the stall of each rank (or, under wall timing, replica) in the newest step."""
        if not self.shape.wall:
            return np.asarray(self._recent["residual"].last(1)[0])
        ratios = self._recent["replica"].last(WINDOW_STEPS)
        usual = median(ratios, 0)[0]
        excess = ratios - usual
        noise = 1.4826 * typical(np.abs(excess))
        stage = float(np.fmax.reduce(self._recent["stage"].last(1), axis=None))
        stall: Floats = np.where(excess[-1] > STALL_SIGMAS * noise, excess[-1], 0.0) * stage
        return stall

    def _spike_arrays(self) -> Spikes:
        struck = [node for _, nodes, _ in self._spikes if nodes for node in nodes]
        nodes = np.bincount(np.array(struck, dtype=np.int64), minlength=self._node_count)
        longest = np.array([spike[0] for spike in self._spikes])
        worst = np.array([spike[2] for spike in self._spikes], dtype=np.float64)
        return Spikes(longest, nodes, worst)
