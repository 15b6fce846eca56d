"""Readers of single values in the API server's JSON: a value of the wrong type counts as absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

MAX_TEXT = 256
"""Characters kept of a value: the longest name in Kubernetes has 253."""

MAX_COUNT = 2**63 - 1
MAX_DIGITS = len(str(MAX_COUNT))
"""Kubernetes keeps whole numbers in 64 bits."""


def moment_of(value: object) -> float:
    """Return a timestamp in Unix seconds; 0 if there is none."""
    try:
        return datetime.fromisoformat(text_of(value).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def mapping_of(value: object) -> Mapping[str, Any]:
    """Return an object; an empty one if there is none."""
    return value if isinstance(value, dict) else {}


def mappings_of(value: object) -> Sequence[Mapping[str, Any]]:
    """Return the objects of an array."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(value: object, limit: int = MAX_TEXT) -> str:
    """Return the beginning of a text; empty if there is none."""
    return value[:limit] if isinstance(value, str) else ""


def texts_of(value: object, limit: int) -> Mapping[str, str]:
    """Return the texts in an object, each cut to `limit` characters."""
    return {
        key[:MAX_TEXT]: text[:limit]
        for key, text in mapping_of(value).items()
        if isinstance(text, str)
    }


def count_of(value: object) -> int:
    """Read a whole number that may be a number or a text; return 0 for anything else."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, str) and value.isascii() and value.isdigit():
        # Python refuses to convert texts of some thousand digits.
        value = int(value) if len(value) <= MAX_DIGITS else 0
    return value if isinstance(value, int) and 0 <= value <= MAX_COUNT else 0
