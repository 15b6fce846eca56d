"""Periods of other jobs outside of pods: there, a node's logs and kills do not say whose they are.

Agents forget a job's logs some time after its processes, so what has no date may be of a job that
began later, too. One that was over before this job began is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NOTED_SECONDS = 60.0
"""Ends are noted up to this late: agents look for ended processes every 15 to 60 seconds."""


@dataclass(frozen=True, slots=True)
class Period:
    """When a job had processes on a node, in Unix seconds; infinite where that is unknown."""

    began: float = -math.inf
    ended: float = math.inf


@dataclass(frozen=True, slots=True)
class OtherPeriods:
    """The periods of other jobs.

    Args:
        began: start of the job itself by node, of its processes that live.
        periods: of other jobs outside of pods, by node.
    """

    began: Mapping[str, float] = field(default_factory=dict)
    periods: Mapping[str, Sequence[Period]] = field(default_factory=dict)

    def may_have(self, node: str, at: float | None = None) -> bool:
        """Return True if what happened on a node may be another job's.

        Args:
            node: the node.
            at: Unix time at which it happened, None if it is unknown.
        """
        began = self.began.get(node, -math.inf)
        return any(
            (at is None or one.began <= at <= one.ended)
            and (one.began >= began or one.ended > began + NOTED_SECONDS or _before(at, began))
            for one in self.periods.get(node, ())
        )


def _before(at: float | None, began: float) -> bool:
    return at is not None and at < began
