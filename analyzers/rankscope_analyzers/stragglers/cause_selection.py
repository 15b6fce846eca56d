"""Which of several simultaneous causes explains the others, and which ones are independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.stragglers.view import Candidate

LATER_MUST_COST = 1.6
"""A slow earlier phase makes later ones deviate: a later cause must cost this much more to win."""


INDEPENDENT: Mapping[FaultClass, tuple[FaultClass, ...]] = {
    "gpu_compute": (
        "data_loader", "network_link", "storage_checkpoint", "global_slowdown", "host_transient",
    ),
    "data_loader": (
        "gpu_compute", "network_link", "global_slowdown", "partition_imbalance", "host_transient",
    ),
    "network_link": ("gpu_compute", "data_loader", "storage_checkpoint", "host_transient"),
    "storage_checkpoint": (
        "gpu_compute", "data_loader", "network_link", "global_slowdown", "host_transient",
    ),
    "global_slowdown": ("gpu_compute", "data_loader", "host_transient"),
    "partition_imbalance": ("gpu_compute", "data_loader", "network_link", "global_slowdown"),
    "host_transient": ("gpu_compute", "network_link", "storage_checkpoint", "global_slowdown"),
}  # fmt: skip
"""Causes that can be found in addition to another one, because a step measures them separately.

Other views of the first cause are left out. A slow GPU makes its stage heavy, slow input on many
ranks raises the median that shared storage is judged by, a slow link and a slow fabric are two
answers to one question, and unequal sequences leave unequal residuals too.
"""

INDEPENDENT_IF_WALL: tuple[FaultClass, ...] = ("data_loader", "network_link", "storage_checkpoint")
"""Under wall timing compute contains waits and stalls: only input and exchange are separate."""


def independent_of(kind: FaultClass, wall: bool) -> frozenset[FaultClass]:
    """Return the classes that can be identified while a cause of class `kind` is active."""
    return frozenset(
        other for other in INDEPENDENT[kind] if not wall or other in INDEPENDENT_IF_WALL
    )


def leading_cause(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate that explains the others, of candidates in the order of the step."""
    winner: Candidate | None = None
    for candidate in candidates:
        if not np.isfinite(candidate.cost):
            continue
        if winner is None or candidate.cost > LATER_MUST_COST * winner.cost:
            winner = candidate
    return winner
