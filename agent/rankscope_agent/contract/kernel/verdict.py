"""The conclusion of a kernel log: the most important incident, and what to do about it. Pure."""

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
"""Of equally severe incidents, the one whose cause may have led to the others."""


MAX_NAMED = 8
"""Subjects of further incidents named in the summary: the GPUs of a node."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The conclusion of a log; `benign` and `none` if nothing went wrong."""

    cause: Cause
    action: Action
    summary: str
    incidents: tuple[Incident, ...]


def judge(seen: Sequence[Seen]) -> Verdict:
    """Return the conclusion from a log's events, with its incidents, the most important first."""
    gpu_events, others = on_gpus(counted(tuple(seen)))
    found = settled(tuple(gpu_incidents(gpu_events)), tuple(host_incidents(others)))
    incidents = tuple(sorted(found, key=_importance))
    if not incidents:
        return Verdict("benign", "none", "nothing in this log went wrong", ())
    first = incidents[0]
    return Verdict(first.cause, first.action, f"{first.summary}{_others(incidents[1:])}", incidents)


def _others(rest: Sequence[Incident]) -> str:
    """Name the subjects of further incidents."""
    if not rest:
        return ""
    subjects = list(dict.fromkeys(one.subject for one in rest))
    beyond = f" and {len(subjects) - MAX_NAMED} more" if len(subjects) > MAX_NAMED else ""
    plural = "s" if len(rest) > 1 else ""
    return f" (and {len(rest)} more incident{plural}: {', '.join(subjects[:MAX_NAMED])}{beyond})"


def _importance(one: Incident) -> tuple[int, int, int]:
    return -SEVERITIES.index(one.severity), CAUSE_ORDER.index(one.cause), one.root.order
