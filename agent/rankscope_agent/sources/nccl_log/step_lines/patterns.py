"""Patterns of values on lines about steps: numbers after their names, and rates with their units.

Each is found in one pass over a line and limited in length, so that no line takes long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NUMBER = rb"[-+]?(?:\d{1,15}(?:\.\d{1,30})?(?:[eE][-+]?\d{1,3})?|[Ii]nf(?:inity)?|[Nn]a[Nn])"
_GROUPED = rb"\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,9})?"
"""Numbers with commas between thousands, as in 3,456.7."""


def value(before: bytes, name: bytes = b"loss", after: bytes = b"") -> re.Pattern[bytes]:
    """Return the pattern of a number between two others, as a group of that name."""
    return re.compile(before + rb"(?P<" + name + rb">" + NUMBER + rb")" + after)


def with_commas(before: bytes, name: bytes, after: bytes = b"") -> re.Pattern[bytes]:
    """Return the same for a number that may contain commas between thousands."""
    number = rb"(?P<" + name + rb">" + _GROUPED + rb"|" + NUMBER + rb")"
    return re.compile(before + number + after)


def _rates(name: bytes, unit: bytes, each: bytes, device: bytes) -> Sequence[re.Pattern[bytes]]:
    """Return the patterns of a rate, with the unit after it, or before it as its name.

    Args:
        name: of the group.
        unit: the counted unit.
        each: the second, as written after a slash.
        device: what may follow, as for rates per GPU; "" for none.
    """
    per = rb"(?:/" + each + rb"|[_ ]per[_ ]sec(?:ond)?)" + device
    # A number before a name belongs to what precedes it: `time 0.5 samples/s: 12.3`; and a rate
    # followed by a slash is per device, even if one for all is expected.
    ends = rb"(?![\w/]|[_ ]per[_ ]| {0,2}[:=])"
    behind = with_commas(rb"(?<![\w.,])", name, rb" {0,2}" + unit + per + ends)
    before = with_commas(rb"(?i:(?<![\w.])" + unit + per + rb") {0,2}[:=]? {0,8}", name)
    return behind, before


_SECOND = rb"s(?:ec(?:ond)?)?"
_SAMPLES = rb"(?i:samples?|images?|imgs?|examples?|sequences?|seqs?)"
_TOKENS = rb"(?i:tok(?:en)?s?)"
_DEVICE = rb"(?:/|[_ ]per[_ ])(?i:gpu|device|chip)"

RATES: Sequence[re.Pattern[bytes]] = (
    *_rates(b"samples_per_second", _SAMPLES, _SECOND, b""),
    *_rates(b"tokens_per_second", _TOKENS, _SECOND, b""),
    *_rates(b"gpu_tokens", _TOKENS, _SECOND, _DEVICE),
)
"""Throughput as users' own scripts print it: `512 images/s`, `tok/sec: 180,000`, and per GPU
`tokens/s/gpu: 3456`."""
