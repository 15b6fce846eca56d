"""The conclusion of a kernel log: the most important incident, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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


BEFORE_BOOT = "before the last boot"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The conclusion of a log; `benign` and `none` if nothing went wrong."""

    cause: Cause
    action: Action
    summary: str
    incidents: tuple[Incident, ...]


def judge(seen: Sequence[Seen], boot: int = 0) -> Verdict:
    """Return the conclusion from a log's events, with its incidents, the most important first.

    What happened before the node's last boot comes after what happened since.

    Args:
        seen: the events.
        boot: the number of the boot that the log ends in.
    """
    gpu_events, others = on_gpus(counted(tuple(seen)))
    found = settled(tuple(gpu_incidents(gpu_events)), tuple(host_incidents(others)))
    incidents = tuple(sorted((_placed(one, boot) for one in found), key=_importance))
    if not incidents:
        return Verdict("benign", "none", "no line of this log is known as a fault", ())
    first = incidents[0]
    return Verdict(first.cause, first.action, f"{first.summary}{_others(incidents[1:])}", incidents)


def _placed(one: Incident, boot: int) -> Incident:
    """Return an incident that says if the node has booted since."""
    if any(event.boots[1] >= boot for event in one.events):
        return one
    return replace(one, before_boot=True, summary=f"{BEFORE_BOOT}: {one.summary}")


def _others(rest: Sequence[Incident]) -> str:
    """Name the subjects of further incidents."""
    if not rest:
        return ""
    subjects = list(dict.fromkeys(map(_subject, rest)))
    beyond = f" and {len(subjects) - MAX_NAMED} more" if len(subjects) > MAX_NAMED else ""
    plural = "s" if len(rest) > 1 else ""
    return f" (and {len(rest)} more incident{plural}: {', '.join(subjects[:MAX_NAMED])}{beyond})"


def _subject(one: Incident) -> str:
    return f"{one.subject} {BEFORE_BOOT}" if one.before_boot else one.subject


def _importance(one: Incident) -> tuple[bool, int, int, int]:
    severity, cause = -SEVERITIES.index(one.severity), CAUSE_ORDER.index(one.cause)
    return one.before_boot, severity, cause, one.root.order
