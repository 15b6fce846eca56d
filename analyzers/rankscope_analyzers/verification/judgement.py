"""The result of one criterion: met, broken, not yet, not applicable, or unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["met", "broken", "not yet", "not applicable", "unknown"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a criterion.

    Args:
        status: `unknown` if it could not be read, `not yet` if the job may still meet it.
        seen: what was seen, as the end of a sentence; the reason for a criterion that does not
            apply.
        expected: the condition, empty if it is met.
        remedy: what to do, empty if nothing is to be done.
    """

    status: Status
    seen: str
    expected: str = ""
    remedy: str = ""

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return {
            "status": self.status,
            "seen": self.seen,
            "expected": self.expected,
            "remedy": self.remedy,
        }


def met(seen: str) -> Judgement:
    """Return that the criterion holds."""
    return Judgement("met", seen)


def broken(seen: str, expected: str, remedy: str) -> Judgement:
    """Return that the criterion is violated, which waiting does not change."""
    return Judgement("broken", seen, expected, remedy)


def not_yet(seen: str, expected: str, remedy: str = "wait, or use --wait") -> Judgement:
    """Return that the job has not come that far."""
    return Judgement("not yet", seen, expected, remedy)


def not_applicable(why: str) -> Judgement:
    """Return that there is nothing to judge in this job."""
    return Judgement("not applicable", why)


def unknown(seen: str, expected: str, remedy: str) -> Judgement:
    """Return that the data it depends on could not be read."""
    return Judgement("unknown", seen, expected, remedy)
