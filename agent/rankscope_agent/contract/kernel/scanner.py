"""Finds the lines of a log that may state an event, and the part that identifies each line.

A log is huge and says little: only the shapes of lines are examined, of which a log has few
distinct ones. Whether lines of a shape may state something is determined once per shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rankscope_agent.contract.kernel.matcher import NEEDLE_SHAPES, OTHERS, rules_for, shape
from rankscope_agent.contract.kernel.nvidia import REFINEMENTS
from rankscope_agent.contract.kernel.rule import Rule

MAX_SHAPES_BYTES = 2 << 20
"""Size of the shapes that are remembered: about 100,000, ten MB including Python's overhead. A
node's log has a few thousand."""

BOOT = b"Linux version "
"""In the first line of every boot: Linux version 6.1.0-18-amd64 (debian-kernel@...) ..."""

_BOOT_SHAPE = shape(BOOT)
_LOOKED_FOR = tuple(
    (needle, needle.translate(None, OTHERS)) for needle in (*NEEDLE_SHAPES, _BOOT_SHAPE)
)
"""Needles with their capitals: if a text lacks a needle, it mostly lacks its capitals already."""

# What precedes a message in logs of the kernel alone: dmesg, journald and syslog with their tag
# `kernel:`, /dev/kmsg with facility 0. Anything else stays part of the message.
_PREFIX = (
    rb"(?:\[[\w .:+\x80-\xff-]{1,40}\] |[0-7],\d{1,20},\d{1,20},[^;\n]{0,40};|"
    rb"(?:[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}|\d{4}-\d\d-\d\dT[\d:.,+Z-]{8,32}) [\w.-]{1,64}"
    rb" kernel: (?:\[[ \d.]{1,20}\] )?|)"
)
# For most Xids, everything relevant ends with the pid: channel and register words vary by line.
_DETAILED = b"|".join(b"%d," % code for code in sorted(REFINEMENTS))
_XID_PREFIX = rb"NVRM: Xid \([^)\n]{0,60}\): (?!" + _DETAILED + rb")\d+, (?:pid=[^,\n]{0,32},|)"

WHOLE = re.compile(_PREFIX + rb"([^\n]*)\n?")
SHORT = re.compile(_PREFIX + rb"(" + _XID_PREFIX + rb"|[^\n]*)[^\n]*\n?")
_CHAINED = shape(b"previous Xid ")

DENSE = 0.4
"""Share of possibly relevant lines from which on grouping equal messages is cheaper than reading
line by line (measured: between 0.3 and 0.6)."""


def grouping(shapes: Iterable[bytes]) -> re.Pattern[bytes]:
    """Return the pattern for a line; its first group is the part that identifies the event.

    For Xids that name the one that caused them, that is the whole message.

    Args:
        shapes: of the lines that may state something.
    """
    return WHOLE if any(_CHAINED in one for one in shapes) else SHORT


class LineFilter:
    """Selects the lines that may state something by their shapes, and remembers the result."""

    def __init__(self) -> None:
        self._irrelevant: set[bytes] = set()
        self._relevant: dict[bytes, tuple[Rule, ...]] = {}
        self.remembered_bytes = 0
        """Total size of the remembered shapes."""

    def relevant(self, shapes: Iterable[bytes]) -> dict[bytes, tuple[Rule, ...]]:
        """Return the shapes whose lines may state something, each with its candidate rules.

        A shape without a rule is that of the first line of a boot.
        """
        if self.remembered_bytes > MAX_SHAPES_BYTES:
            self._irrelevant.clear()
            self._relevant.clear()
            self.remembered_bytes = 0
        different = set(shapes)
        rest = different - self._irrelevant
        if not rest:
            return {}
        unknown = {one for one in rest if one not in self._relevant}
        if unknown:
            self._learn(unknown)
        return {one: self._relevant[one] for one in rest if one in self._relevant}

    def _learn(self, unknown: set[bytes]) -> None:
        together = b"\n".join(unknown)
        self.remembered_bytes += len(together)
        relevant = {}
        for one in _holding_needles(together):
            rules = rules_for(one)
            if rules or _BOOT_SHAPE in one:
                relevant[one] = rules
        self._relevant |= relevant
        self._irrelevant |= unknown.difference(relevant)


def _holding_needles(shapes: bytes) -> set[bytes]:
    """Return those lines of a text of shapes that contain a needle."""
    capitals = shapes.translate(None, OTHERS)
    found = set()
    for needle, its_capitals in _LOOKED_FOR:
        at = shapes.find(needle) if its_capitals in capitals else -1
        while at >= 0:
            end = shapes.find(b"\n", at)
            end = len(shapes) if end < 0 else end
            found.add(shapes[shapes.rfind(b"\n", 0, at) + 1 : end])
            at = shapes.find(needle, end)
    return found


def may_begin_boot(shapes: Iterable[bytes]) -> bool:
    """Return True if lines of one of these shapes may begin a boot."""
    return any(_BOOT_SHAPE in one for one in shapes)
