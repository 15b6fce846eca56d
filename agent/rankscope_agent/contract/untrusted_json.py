"""Parses untrusted JSON: every problem raises one kind of error, and numbers fit into floats."""

from __future__ import annotations

import json
import math
from typing import Any

MOST_DIGITS = 308
"""Maximum digits of an integer: any integer with this many digits fits into a float. Readers
compare numbers with floats, convert them and test whether they are finite, all of which raises for
larger ones."""

_DIGITS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_TOO_MANY = b"0" * (MOST_DIGITS + 1)


def read(text: str | bytes) -> Any:
    """Parse a JSON document; integers of more than `MOST_DIGITS` digits become infinite.

    Raises:
        ValueError: it is not JSON, nests too deeply or is too large to be read.
    """
    try:
        if _has_long_number(text):
            return json.loads(text, parse_int=bounded_number)
        return json.loads(text)
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"not readable as JSON ({error!r})") from None


def bounded_number(digits: str) -> int | float:
    """Return an integer from its digits, as the JSON parser passes them; infinity for too many.

    `1e999` is infinite as well, so that readers reject either in the one entry that contains it.
    """
    if len(digits.lstrip("-")) > MOST_DIGITS:
        return -math.inf if digits.startswith("-") else math.inf
    return int(digits)


def _has_long_number(text: str | bytes) -> bool:
    """Return True if too many digits in a row occur: only then is the slower parser needed.

    In UTF-16 and UTF-32, which the parser reads as well, zeros separate the digits.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return len(raw) > MOST_DIGITS and _TOO_MANY in raw.translate(_DIGITS, b"\0")
