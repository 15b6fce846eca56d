"""The one conclusion of a kernel log: which incident matters most, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope_agent.contract.kernel.host_incidents import host_incidents, settled
from rankscope_agent.contract.kernel.incidents import Incident, gpu_incidents, on_gpus
from rankscope_agent.contract.kernel.log import Seen, counted
from rankscope_agent.contract.kernel.vocabulary import SEVERITIES, Action, Cause

CAUSE_ORDER: tuple[Cause, ...] = (
    "pcie",
    "gpu_memory",
    "gpu_hardware",
    "nvlink_fabric",
    "driver",
    "network_nic",
    "network_link",
    "storage",
    "host_kernel",
    "host_memory",
    "app",
)
"""Of incidents that are as bad, the one whose cause may have made the others."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a log comes down to; `benign` and `none` if nothing went wrong."""

    cause: Cause
    action: Action
    summary: str
    incidents: tuple[Incident, ...]


def judge(seen: Sequence[Seen]) -> Verdict:
    """Return the conclusion of a log's events, with its incidents, what matters most first."""
    gpu_events, others = on_gpus(counted(tuple(seen)))
    found = settled(tuple(gpu_incidents(gpu_events)), tuple(host_incidents(others)))
    incidents = tuple(sorted(found, key=_importance))
    if not incidents:
        return Verdict("benign", "none", "nothing in this log went wrong", ())
    first = incidents[0]
    more = f" (and {len(incidents) - 1} more incidents)" if len(incidents) > 1 else ""
    return Verdict(first.cause, first.action, f"{first.summary}{more}", incidents)


def _importance(one: Incident) -> tuple[int, int, int]:
    return -SEVERITIES.index(one.severity), CAUSE_ORDER.index(one.cause), one.root.order
