"""What one criterion comes to: met, broken, not yet, not applicable, or unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["met", "broken", "not yet", "not applicable", "unknown"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a criterion comes to.

    Args:
        status: `unknown` is what could not be read, `not yet` what the job may still do.
        seen: what was seen, as a sentence's end; of a criterion that does not apply, why.
        expected: what it takes to be met, empty where it is.
        remedy: what to do, empty where nothing is to be done.
    """

    status: Status
    seen: str
    expected: str = ""
    remedy: str = ""

    def as_object(self) -> Mapping[str, Any]:
        """Return it as JSON-ready values."""
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
    """Return that the job has not come so far."""
    return Judgement("not yet", seen, expected, remedy)


def not_applicable(why: str) -> Judgement:
    """Return that there is nothing to judge in this job."""
    return Judgement("not applicable", why)


def unknown(seen: str, expected: str, remedy: str) -> Judgement:
    """Return that what decides it could not be read."""
    return Judgement("unknown", seen, expected, remedy)
