"""How a kind of line is recognised: a literal, a pattern, and the event built from a match."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rankscope_agent.contract.kernel.events import KernelEvent, Kind, clean, pci_address
from rankscope_agent.contract.kernel.vocabulary import Action, Cause, Severity

Builder = Callable[[re.Match[str]], KernelEvent]

MAX_NUMBER_DIGITS = 9
"""Maximum digits of a count that is read from a line."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of line.

    Args:
        needle: text that every such line contains, without the varying parts: decimal and
            hexadecimal numbers are omitted, so the text around a number is written as if the number
            were not there.
        pattern: matches from the first word of the message.
        build: creates the event.
        also: another such text, before or after the needle.
    """

    needle: str
    pattern: re.Pattern[str]
    build: Builder
    also: str = ""


def plain(
    kind: Kind, cause: Cause, action: Action, severity: Severity, detail: bool = False
) -> Builder:
    """Return a builder that takes its fields from the groups of the same names."""

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
