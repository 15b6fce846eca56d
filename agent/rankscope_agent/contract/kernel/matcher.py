"""Finds the event that a kernel log line states: pure, from a line to an event or None."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope_agent.contract.kernel import devices, host, nvidia
from rankscope_agent.contract.kernel.events import KernelEvent
from rankscope_agent.contract.kernel.lines import is_kernel
from rankscope_agent.contract.kernel.nvidia_start import NVRM
from rankscope_agent.contract.kernel.rule import Rule

RULES: tuple[Rule, ...] = (*nvidia.RULES, *devices.RULES, *host.RULES)
"""All rules, in the order in which they are tried."""

# Capitals, and small letters that tell needles apart and are no hexadecimal digits. They are a
# quarter of a log, and lines that differ in nothing but numbers are alike in them.
CAPITALS, OTHERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"ghklmpuvwxy:/!\n"
_IDLE = bytes(set(range(256)) - set(CAPITALS + OTHERS))


def shape(text: bytes) -> bytes:
    """Return what is left of lines without numbers and without the letters that tell little."""
    return text.translate(None, _IDLE)


_SHAPED: tuple[tuple[bytes, bytes, Rule], ...] = tuple(
    (shape(rule.needle.encode()), shape(rule.also.encode()), rule) for rule in RULES
)

_NEEDLES = frozenset(needle for needle, _, _ in _SHAPED)
NEEDLE_SHAPES: tuple[bytes, ...] = tuple(
    sorted(one for one in _NEEDLES if not any(other in one for other in _NEEDLES - {one}))
)
"""One of these is in the shape of every line that states an event."""


def rules_for(shaped: bytes) -> tuple[Rule, ...]:
    """Return the rules that a line of this shape may obey; none if it states nothing."""
    return tuple(
        rule for needle, also, rule in _SHAPED if needle in shaped and (not also or also in shaped)
    )


def match(line: str, rules: Sequence[Rule]) -> KernelEvent | None:
    """Return the event that a line states, whatever stands before the message.

    A line that a program wrote states none, nor one that only looks alike.

    Args:
        line: the line.
        rules: the rules that it may obey, in the order of `RULES`.
    """
    of_nvidia = NVRM in line
    for rule in rules:
        if of_nvidia and rule.needle != NVRM:
            continue  # what this driver says is its own matter, whatever words stand in it
        found = rule.pattern.search(line)
        if found is not None:
            return rule.build(found) if is_kernel(line[: found.start()]) else None
    return None
