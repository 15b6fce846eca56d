"""A pipeline stage that is repeatedly heavy is no partition: its node is slow at times.

Layers stay where they are while a job runs. A node throttles, or shares its power, and recovers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.numeric.medians import typical
from rankscope_analyzers.stragglers.partition_imbalance import RISEN, typical_paces
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.view import Candidate, View

FEWEST_EVALUATIONS = 2
"""Consecutive evaluations before a stage counts as heavy, or as recovered."""

RECOVERED = 1 / 3
"""Fraction of its rise that a recovered stage may keep: noise, and steps of the window from
before."""


class ReturningStages:
    """The stages of one run that were heavy, recovered and became heavy again."""

    __slots__ = ("_heavy", "_highest", "_recovered", "_returned")

    def __init__(self) -> None:
        self._heavy: dict[int, int] = {}
        self._recovered: dict[int, int] = {}
        self._highest: dict[int, float] = {}
        self._returned: tuple[int, ...] = ()

    def judge(self, view: View, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates of an evaluation, with nodes for stages that come and go."""
        heavy = next((one.stage for one in candidates if one.stage >= 0), -1)
        if view.baseline is not None and (heavy >= 0 or self._heavy):
            weights = typical_paces(view)
            if weights is not None:
                self._count(heavy, weights, view.baseline.paces)
        return [
            _of_node(view.shape, one) if one.stage in self._returned else one for one in candidates
        ]

    def _count(self, heavy: int, weights: Floats, usual: Floats) -> None:
        for stage in {heavy, *self._heavy} - {-1}:
            rise = _rise(weights, usual, stage)
            if not np.isfinite(rise):
                continue
            highest = self._highest[stage] = max(rise, self._highest.get(stage, 0.0))
            if stage == heavy and rise > RISEN - 1:
                recovered = self._recovered.pop(stage, 0) >= FEWEST_EVALUATIONS
                if recovered and stage not in self._returned:
                    self._returned = (*self._returned, stage)
                self._heavy[stage] = self._heavy.get(stage, 0) + 1
            elif self._heavy.get(stage, 0) >= FEWEST_EVALUATIONS and rise < RECOVERED * highest:
                self._recovered[stage] = self._recovered.get(stage, 0) + 1


def _rise(weights: Floats, usual: Floats, stage: int) -> float:
    """Return by how much a stage is heavier than usual relative to others, NaN if unknown."""
    now, before = (_over_others(paces, stage) for paces in (weights, usual))
    return now / before - 1 if before > 0 else np.nan


def _over_others(paces: Floats, stage: int) -> float:
    others = typical(np.delete(paces, stage))
    return float(paces[stage]) / others if others > 0 else np.nan


def _of_node(shape: Shape, heavy: Candidate) -> Candidate:
    """Return a heavy stage as a slow node, unless it shares its node or has several."""
    node = int(shape.nodes[heavy.stage].ravel()[0])
    positions = shape.positions_on(node)
    members = np.arange(shape.world).reshape(shape.sizes)[heavy.stage].ravel()
    if node < 0 or not np.array_equal(positions, members):
        return heavy
    return replace(heavy, kind="gpu_compute", ranks=tuple(members.tolist()), stage=-1, stages=())
