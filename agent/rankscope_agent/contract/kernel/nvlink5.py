"""Decodes Xids 144 to 150 (NVLink 5): pure, from unit and status words to a rule.

A line names its unit and six words. Bits 20 to 25 of the first word are the sub-code; the second
word is the error status: for most units a set of bits, for some a number. The rules are those of
NVIDIA's Xid catalogue (sheet of NVLink 5 resolutions, October 2025); for what it does not list, and
for lines without words, the severity that the line prints decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope_agent.contract.kernel.vocabulary import ACTIONS, Action

# The driver pads unit and severity to columns: NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x...
_LINE = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{1,30}) {1,30}(?P<severity>Fatal|Non-?fatal)\b.{0,40}?"
    r"Link (?P<link>-?\d{1,3})"
    r"(?: \(0x(?P<first>[0-9a-fA-F]{1,8}) 0x(?P<status>[0-9a-fA-F]{1,8}))?",
    re.IGNORECASE,
)

VENDOR, CABLES, PEER, SOFTWARE, HOST = (
    "if it comes back, the vendor needs to know",
    "check the link's cables and connectors",
    "the device at the other end of the link is the cause: look there",
    "software or a user took the link down",
    "the host took the link down",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """The meaning of one status of one unit: whether link or GPU is lost, and what to do."""

    fatal: bool
    action: Action
    then: str = ""


@dataclass(frozen=True, slots=True)
class LinkError:
    """The contents of an NVLink 5 line; `link` is -1 if it does not concern a single link."""

    unit: str
    link: int
    rule: Rule


HARMLESS = Rule(False, "none")
WATCHED = Rule(False, "none", VENDOR)
PROGRAM = Rule(False, "restart_app")  # the catalogue leaves these to Xid 154, if it follows
RESET = Rule(True, "reset_gpu", VENDOR)

_BUFFER = {0x1: HARMLESS, 0x2: WATCHED, 0x4: RESET, 0x80000000: WATCHED}

BIT_RULES: Mapping[str, Mapping[int, Rule]] = {
    "SAW_MVB": {
        0x1: WATCHED,
        0x2: RESET,
        0x4: HARMLESS,
        0x8: WATCHED,
        0x10: RESET,
        0x20: HARMLESS,
    },
    "RLW_CTRL": {0x80000000: WATCHED},
    "RLW_REMAP": {
        **dict.fromkeys((0x1, 0x2, 0x4, 0x8, 0x10, 0x20), PROGRAM),
        **dict.fromkeys((0x40, 0x80), RESET),
        **dict.fromkeys((0x100, 0x200), HARMLESS),
        0x80000000: WATCHED,
    },
    "RLW_RSPCOL": {0x1: HARMLESS, 0x2: RESET, 0x80000000: WATCHED},
    "RLW_RXPIPE": dict.fromkeys((0x1, 0x2, 0x4, 0x8, 0x80000000), WATCHED),
    "RLW_SRC_TRACK": {
        0x2: HARMLESS,
        **dict.fromkeys((0x4, 0x8), PROGRAM),
        **dict.fromkeys((0x1, 0x10, 0x20), RESET),
        0x80000000: WATCHED,
    },
    "RLW_TAGSTATE": {
        **dict.fromkeys((0x1, 0x10000), HARMLESS),
        **dict.fromkeys((0x2, 0x20000, 0x100000), RESET),
        0x80000000: WATCHED,
    },
    "TLW_CTRL": _BUFFER,
    "TLW_RX": _BUFFER,
    "TLW_TX": _BUFFER,
    "TREX": {0x1: WATCHED, 0x80000000: WATCHED},
    "NVLPW": {0x80000000: WATCHED},
}
"""By unit and bit of the error status; of several bits the worst one counts."""

PROMOTED_UNIT, PROMOTED_BITS = "RLW_RXPIPE", 0x7
"""Errors that the driver may be told to treat as fatal: a bit of the first word shows that it did,
and the catalogue then has a second action for them, a reset."""

_LINK_LOST = Rule(True, "reset_gpu")
_LINK_NOISE = Rule(True, "reset_gpu", CABLES)
_LINK_PEER = Rule(True, "reset_gpu", PEER)
_LINK_SOFTWARE = Rule(True, "reset_gpu", SOFTWARE)

LINK_DOWN_RULES: Mapping[int, Rule] = {
    0x00: _LINK_LOST,
    0x01: RESET,
    **dict.fromkeys((0x02, 0x04, 0x0A, 0x2A, 0x2B), _LINK_NOISE),
    **dict.fromkeys((0x0F, 0x10, 0x11, 0x12, 0x16), _LINK_SOFTWARE),
    **dict.fromkeys((0x15, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25), _LINK_PEER),
    0x26: Rule(True, "none", SOFTWARE),
    0x28: Rule(True, "none", HOST),
}
"""Why a link went down: by the sub-code of unit NETIR_LINK_EVT (also NETIR_LINK_DOWN)."""

NUMBER_RULES: Mapping[str, Mapping[int, Rule]] = {
    "NETIR_BER_EVENT": dict.fromkeys(range(4), Rule(False, "none", CABLES)),
    "NETIR_MFDE_EVENT": {3: HARMLESS, **dict.fromkeys((1, 4, 5, 7), RESET)},
    "NETIR_INT": {0: _LINK_LOST},
    "NETIR": {0: _LINK_LOST},
    "MSE_WATCHDOG": {0: RESET},
}
"""By unit and error status taken as a number."""


def read(message: str) -> LinkError | None:
    """Return the meaning of the message of an Xid 144 to 150; None if it is malformed."""
    match = _LINE.search(message)
    if match is None:
        return None
    unit = match["unit"].upper()
    printed = RESET if match["severity"].lower() == "fatal" else WATCHED
    known = None
    if match["status"] is not None:
        known = _rule(unit, int(match["first"], 16), int(match["status"], 16), printed)
    return LinkError(unit, int(match["link"]), known or printed)


def _rule(unit: str, first: int, status: int, printed: Rule) -> Rule | None:
    if unit.startswith(("NETIR_LINK_EVT", "NETIR_LINK_DOWN")):
        return LINK_DOWN_RULES.get(first >> 20 & 0x3F)
    if unit in NUMBER_RULES:
        return NUMBER_RULES[unit].get(status)
    return max(_bits(unit, first, status, printed), key=_gravity, default=None)


def _bits(unit: str, first: int, status: int, printed: Rule) -> Iterator[Rule]:
    """Yield the rules of the bits that are set; pipes are printed as TLW_RX_PIPE0 or NVLPW_CTRL."""
    name = next((known for known in BIT_RULES if unit.startswith(known)), "")
    rules = BIT_RULES.get(name, {})
    for bit, rule in rules.items():
        if status & bit:
            yield rule
    if name == PROMOTED_UNIT and status & PROMOTED_BITS and _is_promoted(first):
        yield RESET
    if status & ~sum(rules):
        yield printed


def _is_promoted(first: int) -> bool:
    """Return True if an error of `PROMOTED_UNIT` was made fatal.

    Drivers before 575 have the unit's number, 6, in bits 5 to 9, later ones in bits 0 to 6.
    """
    if first & 0x3FF == 6 << 5 | 2:
        return bool(first & 0x400)
    return first & 0xFF == 0x80 | 6


def _gravity(rule: Rule) -> tuple[int, bool]:
    return ACTIONS.index(rule.action), bool(rule.then)
