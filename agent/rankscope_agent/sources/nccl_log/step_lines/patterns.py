"""Patterns of values on lines about steps: numbers behind their names, and rates with their units.

Each is found by one pass over a line and bounded in length, so that no line takes long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NUMBER = rb"[-+]?(?:\d{1,15}(?:\.\d{1,30})?(?:[eE][-+]?\d{1,3})?|[Ii]nf(?:inity)?|[Nn]a[Nn])"
_GROUPED = rb"\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,9})?"
"""Thousands with commas, as in 3,456.7."""


def value(before: bytes, name: bytes = b"loss", after: bytes = b"") -> re.Pattern[bytes]:
    """Return the pattern of a number between two others, as a group of that name."""
    return re.compile(before + rb"(?P<" + name + rb">" + NUMBER + rb")" + after)


def with_commas(before: bytes, name: bytes, after: bytes = b"") -> re.Pattern[bytes]:
    """Return the same of a number in which thousands may have commas."""
    number = rb"(?P<" + name + rb">" + _GROUPED + rb"|" + NUMBER + rb")"
    return re.compile(before + number + after)


def _rates(name: bytes, unit: bytes, each: bytes, device: bytes) -> Sequence[re.Pattern[bytes]]:
    """Return the patterns of a rate whose unit stands behind it, or before it as its name.

    Args:
        name: of the group.
        unit: what is counted.
        each: the second, as it is written behind a slash.
        device: what may follow, as of rates of one GPU; "" for none.
    """
    per = rb"(?:/" + each + rb"|[_ ]per[_ ]sec(?:ond)?)" + device
    # A number before a name belongs to what stands before it: `time 0.5 samples/s: 12.3`; and what
    # goes on with a slash is of one device where it is to be of all.
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
"""Throughput as scripts of one's own print it: `512 images/s`, `tok/sec: 180,000`, and of each GPU
`tokens/s/gpu: 3456`."""
