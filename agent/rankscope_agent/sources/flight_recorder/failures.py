"""Why a rank's worker server could not be queried."""

from __future__ import annotations

from typing import Literal, get_args

Reason = Literal[
    "symlink",
    "not_socket",
    "owner",
    "permission",
    "refused",
    "timeout",
    "too_large",
    "http",
    "malformed",
    "version",
    "no_recorder",
    "empty",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""The label values of `..._flight_recorder_failures_total`."""


class FlightError(Exception):
    """A socket could not be queried; `reason` is one of `REASONS`, the text says what was seen."""

    def __init__(self, reason: Reason, seen: str) -> None:
        super().__init__(seen)
        self.reason: Reason = reason
