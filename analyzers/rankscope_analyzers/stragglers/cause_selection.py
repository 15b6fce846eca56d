"""Which of several simultaneous causes explains the others, and which ones are independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import numpy as np

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.stragglers.shape import Contents
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
    "network_link": (
        "gpu_compute", "data_loader", "storage_checkpoint", "global_slowdown", "host_transient",
    ),
    "storage_checkpoint": (
        "gpu_compute", "data_loader", "network_link", "global_slowdown", "host_transient",
    ),
    "global_slowdown": ("gpu_compute", "data_loader", "network_link", "host_transient"),
    "partition_imbalance": ("gpu_compute", "data_loader", "network_link", "global_slowdown"),
    "host_transient": ("gpu_compute", "network_link", "storage_checkpoint", "global_slowdown"),
}  # fmt: skip
"""Causes that can be found in addition to another one, because a step measures them separately.

Other views of the first cause are left out. A slow GPU makes its stage heavy, slow input on many
ranks raises the median that shared storage is judged by, and unequal sequences leave unequal
residuals too. A slow link and a slow fabric are two answers to one question: see `are_independent`.
"""

Part = Literal["input", "compute", "exchange"]


class Cause(Protocol):
    """A candidate or an incident."""

    @property
    def kind(self) -> FaultClass:
        """Return its class."""
        ...

    @property
    def shown_by(self) -> str:
        """Return how it shows, if its class can show in several ways."""
        ...


def are_independent(first: Cause, second: Cause, contents: Contents) -> bool:
    """Return True if the second cause can be identified while the first one is active."""
    if second.kind not in INDEPENDENT[first.kind]:
        return False
    earlier, later = _part(first.kind, first.shown_by), _part(second.kind, second.shown_by)
    if contents == "kernels":
        return earlier != "exchange" or later != "exchange"
    if earlier == later:
        return False
    return contents == "stalls" or later != "compute"


def hides_stalls(first: Cause, contents: Contents) -> bool:
    """Return True if a cause is active beside which long compute of some steps is no stall."""
    if contents == "kernels" or first.kind == "host_transient":
        return False
    return contents == "waits" or _part(first.kind, first.shown_by) == "compute"


def _part(kind: FaultClass, shown_by: str) -> Part:
    """Return the part of the step in which a cause shows."""
    if kind == "network_link" or shown_by == "exchange":
        return "exchange"
    return "input" if kind in {"data_loader", "storage_checkpoint"} else "compute"


def leading_cause(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate that explains the others, of candidates in the order of the step."""
    winner: Candidate | None = None
    for candidate in candidates:
        if not np.isfinite(candidate.cost):
            continue
        if winner is None or candidate.cost > LATER_MUST_COST * winner.cost:
            winner = candidate
    return winner
