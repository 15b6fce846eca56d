"""Kubernetes' quantities, such as 500m, 10Gi and 8."""

from __future__ import annotations

import re

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY = re.compile(
    r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?"
)
FACTORS = {
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

LONGEST = 64
"""Longest quantity; no sensible one is longer."""


def quantity(value: object) -> float | None:
    """Return a quantity as a number: bytes, cores or devices; None if it is invalid."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    text = str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST else None
    if not match:
        return None
    exponent = 10.0 ** int(match[3]) if match[3] else 1.0
    return float(match[1]) * FACTORS.get(match[2] or "", 1.0) * exponent
