"""How numbers are put into sentences, so that findings and reports say them alike."""

from __future__ import annotations

import math
from datetime import datetime, timezone

UNKNOWN = "unknown"


def duration(seconds: float) -> str:
    """Return a duration with the unit that a person would use."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def against(observed: float, expected: float) -> str:
    """Return two durations set against each other."""
    return f"{duration(observed)} against {duration(expected)}"


def value(number: float, unit: str) -> str:
    """Return a measured value with its unit."""
    if not math.isfinite(number):
        return UNKNOWN
    return duration(number) if unit == "seconds" else f"{number:.4g} {unit}".rstrip()


def clock(unix_seconds: float | None) -> str:
    """Return a moment in UTC; clocks of nodes can be anything, then it is unknown."""
    try:
        moment = datetime.fromtimestamp(
            math.nan if unix_seconds is None else unix_seconds, timezone.utc
        )
    except (ValueError, OverflowError, OSError):
        return UNKNOWN
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def period(since: float | None, until: float | None) -> str:
    """Return since when something goes on, or from when to when it went; "" where nobody knows."""
    if since is None:
        return "" if until is None else f"until {clock(until)}"
    return f"since {clock(since)}" if until is None else f"from {clock(since)} to {clock(until)}"
