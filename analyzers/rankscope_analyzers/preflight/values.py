"""Parts of untrusted manifests: a value of another type than expected counts as absent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY = re.compile(
    r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?"
)
_FACTORS = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}


def mapping(value: object, *path: str) -> Object:
    """Return the mapping at a path of keys, an empty one where there is none."""
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


def quantity(value: object) -> float | None:
    """Return a Kubernetes quantity as a number: bytes, cores or devices."""
    match = _QUANTITY.fullmatch(text(value))
    if not match:
        return None
    exponent = 10.0 ** int(match[3]) if match[3] else 1.0
    return float(match[1]) * _FACTORS.get(match[2] or "", 1.0) * exponent


def size(count: float) -> str:
    """Return a number of bytes as people write it."""
    for unit in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        if count >= _FACTORS[unit]:
            return f"{count / _FACTORS[unit]:.4g}{unit}"
    return f"{count:.0f} bytes"
