"""Finds the event that a kernel log line states: pure, from a line to an event or None."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope_agent.contract.kernel import devices, firmware_reports, host, nvidia, slow_devices
from rankscope_agent.contract.kernel.events import KernelEvent
from rankscope_agent.contract.kernel.lines import is_kernel
from rankscope_agent.contract.kernel.nvidia_start import NVRM
from rankscope_agent.contract.kernel.rule import Rule

RULES: tuple[Rule, ...] = (
    *nvidia.RULES,
    *devices.RULES,
    *host.RULES,
    *firmware_reports.RULES,
    *slow_devices.RULES,
)
"""All rules, in the order in which they are tried."""

# Capitals, and the lower-case letters that distinguish needles and are no hexadecimal digits. They
# are a quarter of a log, and lines that differ only in numbers have the same ones.
CAPITALS, OTHERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"ghklmpuvwxy:/!\n"
_IDLE = bytes(set(range(256)) - set(CAPITALS + OTHERS))


def shape(text: bytes) -> bytes:
    """Return lines reduced to the letters that distinguish needles, without numbers."""
    return text.translate(None, _IDLE)


_SHAPED: tuple[tuple[bytes, bytes, Rule], ...] = tuple(
    (shape(rule.needle.encode()), shape(rule.also.encode()), rule) for rule in RULES
)

_NEEDLES = frozenset(needle for needle, _, _ in _SHAPED)
NEEDLE_SHAPES: tuple[bytes, ...] = tuple(
    sorted(one for one in _NEEDLES if not any(other in one for other in _NEEDLES - {one}))
)
"""At least one of these is in the shape of every line that states an event."""


def rules_for(shaped: bytes) -> tuple[Rule, ...]:
    """Return the candidate rules for a line of this shape; none if it cannot state an event."""
    return tuple(
        rule for needle, also, rule in _SHAPED if needle in shaped and (not also or also in shaped)
    )


def match(line: str, rules: Sequence[Rule]) -> KernelEvent | None:
    """Return the event that a line states, whatever precedes the message.

    A line written by a program states none, nor does one that only looks similar.

    Args:
        line: the line.
        rules: the candidate rules, in the order of `RULES`.
    """
    of_nvidia = NVRM in line
    for rule in rules:
        if of_nvidia and rule.needle != NVRM:
            continue  # what this driver prints is its own business, whatever words it contains
        found = rule.pattern.search(line)
        if found is not None:
            return rule.build(found) if is_kernel(line[: found.start()]) else None
    return None
