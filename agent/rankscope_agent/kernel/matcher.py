"""Finds the event that a line of the kernel log states: pure, from a line to an event or None."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rankscope_agent.kernel import devices, host, nvidia
from rankscope_agent.kernel.events import KernelEvent
from rankscope_agent.kernel.lines import is_kernel
from rankscope_agent.kernel.rule import Rule


def _by_needle() -> Mapping[str, tuple[Rule, ...]]:
    found: dict[str, list[Rule]] = defaultdict(list)
    for rule in (*nvidia.RULES, *devices.RULES, *host.RULES):
        found[rule.needle].append(rule)
    return {needle: tuple(rules) for needle, rules in found.items()}


RULES = _by_needle()
"""Rules by the literal that their lines hold."""

NEEDLES: tuple[bytes, ...] = tuple(needle.encode() for needle in RULES)
"""What a log is searched for."""


def match(line: str, needles: Iterable[str] = tuple(RULES)) -> KernelEvent | None:
    """Return the event that a line states, whatever stands before the message.

    A line that a program wrote states none, nor one that only looks alike.

    Args:
        line: the line.
        needles: literals that it may hold, in the order of `RULES`.
    """
    for needle in needles:
        if needle not in line:
            continue
        for rule in RULES[needle]:
            found = rule.pattern.search(line)
            if found is not None:
                return rule.build(found) if is_kernel(line[: found.start()]) else None
        if needle == nvidia.NVRM:
            return None
    return None
