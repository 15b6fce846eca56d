"""Finds what in a log may state an event, at the speed of searching bytes."""

from __future__ import annotations

import re

from rankscope_agent.kernel.matcher import NEEDLES
from rankscope_agent.kernel.nvidia import REFINEMENTS

DENSE = 0.4
"""Share of lines with a needle from which grouping equal messages is cheaper than going from line
to line (measured: between 0.3 and 0.6)."""

# Searching costs most. Needles with some capitals are looked for among the text's capitals, a tenth
# of it, the others in what is left without half of its characters. What is found there is then
# looked for in the text itself.
_CAPITALS = bytes(range(ord("A"), ord("Z") + 1))
_NOT_CAPITALS = bytes(set(range(256)) - set(_CAPITALS) - {ord("\n")})
_FREQUENT = b"0123456789 aeistn"
_MINIMUM_CAPITALS = 3

_BY_CAPITALS = tuple(
    (needle, capitals)
    for needle in NEEDLES
    if len(capitals := needle.translate(None, _NOT_CAPITALS)) >= _MINIMUM_CAPITALS
)
_BY_REST = tuple(
    (needle, needle.translate(None, _FREQUENT))
    for needle in NEEDLES
    if needle not in dict(_BY_CAPITALS)
)
_IN_REST = frozenset(b"".join(rest for _, rest in _BY_REST)) | {ord("\n")}
_NOT_IN_REST = bytes(set(range(256)) - _IN_REST)

# What stands before a message in logs of the kernel alone: dmesg, journald and syslog with their
# tag `kernel:`, /dev/kmsg with facility 0. Anything else stays part of the message.
_PREFIX = (
    rb"(?:\[[\w .:+\x80-\xff-]{1,40}\] |[0-7],\d{1,20},\d{1,20},[^;\n]{0,40};|"
    rb"(?:[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}|\d{4}-\d\d-\d\dT[\d:.,+Z-]{8,32}) [\w.-]{1,64}"
    rb" kernel: (?:\[[ \d.]{1,20}\] )?)?"
)
# Of most Xids, all that counts ends with the pid: channel and register words differ in each line.
_DETAILED = b"|".join(b"%d," % code for code in sorted(REFINEMENTS))
_HEAD = rb"NVRM: Xid \([^)\n]{0,60}\): (?!" + _DETAILED + rb")\d+, (?:pid=[^,\n]{0,32},)?"

WHOLE = re.compile(_PREFIX + rb"([^\n]*)\n?")
SHORT = re.compile(_PREFIX + rb"(" + _HEAD + rb"|[^\n]*)[^\n]*\n?")
CHAINED = b"previous Xid"
XID = b"NVRM: Xid ("


def grouping(text: bytes) -> re.Pattern[bytes]:
    """Return the pattern that matches a line; its first group is the part that tells the event.

    Where Xids name the one that caused them, that is the whole message.
    """
    return WHOLE if CHAINED in text else SHORT


def parts_of(text: bytes, lines: list[bytes], pattern: re.Pattern[bytes]) -> list[bytes]:
    """Return for each line the part that tells its event, or its whole message."""
    stamped = text.startswith(b"[") and text.count(b"\n[") >= len(lines) - 2
    if stamped and 2 * text.count(XID) < len(lines):
        return [line[line.find(b"] ") + 2 :] if line[:1] == b"[" else line for line in lines]
    return pattern.findall(text)[: len(lines)]


def needles_in(text: bytes) -> tuple[bytes, ...]:
    """Return the needles that may stand in a text, none if there are none."""
    capitals = text.translate(None, _NOT_CAPITALS)
    rest = text.translate(None, _NOT_IN_REST)
    found = {needle for needle, sieved in _BY_CAPITALS if sieved in capitals}
    found.update(needle for needle, sieved in _BY_REST if sieved in rest)
    return tuple(needle for needle in NEEDLES if needle in found)


def lines_with(text: bytes, needles: tuple[bytes, ...]) -> list[tuple[int, int]] | None:
    """Return start and end of each line that holds a needle, in order; None if they are `DENSE`."""
    ends: dict[int, int] = {}
    most = DENSE * (text.count(b"\n") + 1) + 1
    if any(text.count(needle) > most for needle in needles):
        return None  # or nearly: some needles stand twice in a line
    for needle in needles:
        at = text.find(needle)
        while at >= 0:
            end = text.find(b"\n", at)
            end = len(text) if end < 0 else end
            ends[text.rfind(b"\n", 0, at) + 1] = end
            if len(ends) > most:
                return None
            at = text.find(needle, end)
    return sorted(ends.items())
