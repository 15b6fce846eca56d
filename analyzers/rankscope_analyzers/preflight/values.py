"""Parts of untrusted manifests: a value of another type than expected counts as absent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rankscope_analyzers.workloads.quantities import FACTORS

Object = Mapping[str, Any]


def mapping(value: object, *path: str) -> Object:
    """Return the mapping at a path of keys, an empty one if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> Sequence[Object]:
    """Return the mappings of a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def texts(value: object) -> Sequence[str]:
    """Return a list's texts and numbers as text."""
    known = (str, int, float)
    return [str(one) for one in value if isinstance(one, known)] if isinstance(value, list) else []


def text(value: object) -> str:
    """Return a text, a number as text, and an empty text for everything else."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (str, int, float)) else ""


def number(value: object) -> int | None:
    """Return a whole number, also one that is written as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,15}", value) else None


def count(value: object) -> int | None:
    """Return a whole number that is not negative, also one that is written as text."""
    known = number(value)
    return None if known is None or known < 0 else known


def size(number_of_bytes: float) -> str:
    """Return a number of bytes as people write it."""
    for unit in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        if number_of_bytes >= FACTORS[unit]:
            return f"{number_of_bytes / FACTORS[unit]:.4g}{unit}"
    return f"{number_of_bytes:.0f} bytes"
