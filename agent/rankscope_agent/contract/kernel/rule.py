"""How a kind of line is recognised: a literal, a pattern, and what a match becomes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rankscope_agent.contract.kernel.events import KernelEvent, Kind, clean, pci_address
from rankscope_agent.contract.kernel.vocabulary import Action, Cause, Severity

Builder = Callable[[re.Match[str]], KernelEvent]

MAX_NUMBER_DIGITS = 9
"""Digits of a count that is taken from a line: more are no count."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of line.

    Args:
        needle: text that every such line holds, without what varies: decimal and hexadecimal
            numbers are left out, so what stands around one may be written as if it were not there.
        pattern: matches from the message's first word on.
        build: makes the event.
        also: another such text, before or after.
    """

    needle: str
    pattern: re.Pattern[str]
    build: Builder
    also: str = ""


def plain(
    kind: Kind, cause: Cause, action: Action, severity: Severity, detail: bool = False
) -> Builder:
    """Return a builder that takes its parts from groups of their names, those that there are."""

    def build(match: re.Match[str]) -> KernelEvent:
        groups = match.groupdict()
        count = groups.get("count") or "1"
        pid = groups.get("pid")
        return KernelEvent(
            kind=kind,
            cause=cause,
            action=action,
            severity=severity,
            text=clean(match.string[match.start() :]),
            pci=pci_address(groups.get("pci") or ""),
            pid=int(pid) if pid else None,
            comm=clean(groups.get("comm") or ""),
            device=clean(groups.get("device") or ""),
            count=int(count) if len(count) <= MAX_NUMBER_DIGITS else 1,
            detail=detail,
            cgroup=clean(groups.get("cgroup") or ""),
            victim=clean(groups.get("victim") or ""),
        )

    return build
