"""The result of an item of the proof, and the time that is left for the others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["passed", "failed", "not available here", "out of time"]

Figures = Mapping[str, Any]
"""What an item has measured: JSON-ready values by name."""

TOTAL_SECONDS = 540.0


class NotAvailableError(Exception):
    """An item needs what this machine does not have; the message names it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One item.

    Args:
        item: its name.
        status: `failed` if something was measured and is wrong.
        figures: JSON-ready values.
        reason: why it did not pass, empty if it did.
        seconds: that it took.
    """

    item: str
    status: Status
    figures: Figures = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)

    def line(self) -> str:
        """Return the line that is printed when the item ends."""
        shown = ", ".join(f"{name} {_short(value)}" for name, value in self.figures.items())
        words = [f"{self.item}: {self.status}", self.reason, shown]
        return "; ".join(word for word in words if word) + f" ({self.seconds:.1f} s)"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class TimeLeft:
    """The rest of the time for all items."""

    def __init__(self, seconds: float = TOTAL_SECONDS) -> None:
        self._end = time.monotonic() + seconds

    @property
    def seconds(self) -> float:
        """Return the seconds until the end, 0 after it."""
        return max(self._end - time.monotonic(), 0.0)
