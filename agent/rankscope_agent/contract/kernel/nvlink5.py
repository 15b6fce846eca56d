"""Decodes Xids 144 to 150 (NVLink 5): pure, from unit and status words to a rule.

A line names its unit and six words. Bits 20 to 25 of the first word are the sub-code; the second
word is the error status: for most units a set of bits, for some a number. The rules are those of
NVIDIA's Xid catalogue (sheet of NVLink 5 resolutions, October 2025); for what it does not list, the
severity that the line prints decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope_agent.contract.kernel.vocabulary import Action, stronger

_LINE = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{1,30}) (?P<severity>Fatal|Non-?fatal)\b.{0,40}?"
    r"Link (?P<link>-?\d{1,3}) \(0x(?P<first>[0-9a-fA-F]{1,8}) 0x(?P<status>[0-9a-fA-F]{1,8})",
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
    first, status = int(match["first"], 16), int(match["status"], 16)
    known = _rule(unit, first >> 20 & 0x3F, status)
    fatal = match["severity"].lower() == "fatal"
    rule = known or (Rule(True, "reset_gpu", VENDOR) if fatal else WATCHED)
    return LinkError(unit, int(match["link"]), rule)


def _rule(unit: str, subcode: int, status: int) -> Rule | None:
    if unit.startswith(("NETIR_LINK_EVT", "NETIR_LINK_DOWN")):
        return LINK_DOWN_RULES.get(subcode)
    if unit in NUMBER_RULES:
        return NUMBER_RULES[unit].get(status)
    found = tuple(_bits(unit, status))
    if not found:
        return None
    worst = found[0]
    for rule in found[1:]:
        if stronger(rule.action, worst.action) != worst.action:
            worst = rule
    return worst


def _bits(unit: str, status: int) -> Iterator[Rule]:
    """Yield the rules of the bits that are set; pipes are printed as TLW_RX_PIPE0 or NVLPW_CTRL."""
    name = next((known for known in BIT_RULES if unit.startswith(known)), "")
    for bit, rule in BIT_RULES.get(name, {}).items():
        if status & bit:
            yield rule
