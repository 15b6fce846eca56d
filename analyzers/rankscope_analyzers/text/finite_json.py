"""JSON that any program can read: numbers that are not finite become null, like unknown values."""

from __future__ import annotations

import json
import math
from typing import Any


def text(value: Any, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """Return a value as JSON. NaN and infinities, which JSON does not have, become null."""
    try:
        return json.dumps(value, indent=indent, separators=separators, allow_nan=False)
    except ValueError:  # Nearly always all is finite, and walking through it takes longer.
        known = _finite(value)
        return json.dumps(known, indent=indent, separators=separators, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
