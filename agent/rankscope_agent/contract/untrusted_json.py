"""Parses untrusted JSON: every problem raises one kind of error, and numbers fit into floats."""

from __future__ import annotations

import json
import math
from typing import Any

MOST_DIGITS = 308
"""Of an integer: every one of so many digits is a float as well. Readers compare numbers with
floats, convert them and ask whether they are finite, all of which raises for larger ones."""

_DIGITS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_TOO_MANY = b"0" * (MOST_DIGITS + 1)


def read(text: str | bytes) -> Any:
    """Return what a JSON document holds; integers of more than `MOST_DIGITS` digits are infinite.

    Raises:
        ValueError: it is none, or nests so deeply or holds so much that it cannot be read.
    """
    try:
        if _has_long_number(text):
            return json.loads(text, parse_int=bounded_number)
        return json.loads(text)
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"JSON that cannot be read ({error!r})") from None


def bounded_number(digits: str) -> int | float:
    """Return an integer, given as the parser of JSON gives it; infinity if it has too many digits.

    `1e999` is infinite as well, so that readers refuse either in the one entry that has it.
    """
    if len(digits.lstrip("-")) > MOST_DIGITS:
        return -math.inf if digits.startswith("-") else math.inf
    return int(digits)


def _has_long_number(text: str | bytes) -> bool:
    """Return True if so many digits stand in a row anywhere: the parser is twice as fast without.

    The digits of UTF-16 and UTF-32, which it reads as well, have zeros between them.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return len(raw) > MOST_DIGITS and _TOO_MANY in raw.translate(_DIGITS, b"\0")
