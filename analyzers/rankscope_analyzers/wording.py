"""How numbers are put into sentences, so that findings and reports say them alike."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a duration with the unit that a person would use."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def against(observed: float, expected: float) -> str:
    """Return two durations set against each other."""
    return f"{duration(observed)} against {duration(expected)}"
