"""How numbers are written in sentences, the same in findings and reports."""

from __future__ import annotations

import math
from datetime import datetime, timezone

UNKNOWN = "unknown"

PREFIXED = {"Hz": "Hz", "W": "W", "bytes": "B", "bytes/s": "B/s", "bits/s": "bit/s"}
"""Units that take a prefix, and how the prefixed units are written."""

PREFIXES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))

WORDLESS = frozenset({"ratio", "state"})
"""Units that are not a word after the number."""

WHOLE_FROM = 1000
"""Larger numbers are written with separators and without an exponent."""


BRIEF_SECONDS = 1e-4
"""Shorter times would be written as 0.0 or 0.1 ms, which is too coarse."""

LONG_IN_SECONDS, LONG_IN_MINUTES = 120, 7200
"""A duration of at least two of the next larger unit is given in that unit."""


def duration(seconds: float) -> str:
    """Return a duration in the unit that a person would use."""
    if not math.isfinite(seconds):
        return UNKNOWN
    if abs(seconds) < BRIEF_SECONDS:
        return f"{seconds * 1e6:.0f} us" if seconds else "0 s"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def age(seconds: float) -> str:
    """Return how long ago something was, as people write it: 40 s, 4 min, 3.5 h."""
    if seconds < LONG_IN_SECONDS:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < LONG_IN_MINUTES else f"{seconds / 3600:.1f} h"


def against(observed: float, expected: float) -> str:
    """Return two durations compared with each other; the first one alone if none is usual."""
    if not expected:
        return duration(observed)
    return f"{duration(observed)} against {duration(expected)}"


def value(number: float, unit: str) -> str:
    """Return a measured value with its unit."""
    if not math.isfinite(number):
        return UNKNOWN
    if unit == "seconds":
        return duration(number)
    if unit in PREFIXED:
        return _prefixed(number, PREFIXED[unit])
    plain = f"{number:,.0f}" if abs(number) >= WHOLE_FROM else f"{number:.4g}"
    return plain if unit in WORDLESS else f"{plain} {unit}".rstrip()


def _prefixed(number: float, unit: str) -> str:
    for prefix, factor in PREFIXES:
        if abs(number) >= factor:
            return f"{number / factor:.4g} {prefix}{unit}"
    return f"{number:.4g} {unit}"


def clock(unix_seconds: float | None) -> str:
    """Return a moment in UTC, or that it is unknown: clocks of nodes can show anything."""
    try:
        moment = datetime.fromtimestamp(
            math.nan if unix_seconds is None else unix_seconds, timezone.utc
        )
    except (ValueError, OverflowError, OSError):
        return UNKNOWN
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def instant(unix_seconds: float | None) -> str:
    """Return a moment in UTC to the millisecond, in RFC 3339 format; a dash if it is unknown."""
    try:
        moment = datetime.fromtimestamp(
            math.nan if unix_seconds is None else unix_seconds, timezone.utc
        )
    except (ValueError, OverflowError, OSError):
        return "-"
    return f"{moment.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def period(since: float | None, until: float | None) -> str:
    """Return since when something has been going on, or its start and end; "" if unknown."""
    if since is None:
        return "" if until is None else f"until {clock(until)}"
    return f"since {clock(since)}" if until is None else f"from {clock(since)} to {clock(until)}"
