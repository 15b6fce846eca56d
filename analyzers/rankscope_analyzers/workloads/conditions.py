"""Conditions of an object: those that hold, why and since when. Unknown ones are passed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope_analyzers.workloads.fields import Fields, moment, objects, text


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that holds.

    Args:
        reason: one word, chosen by its setter.
        message: a sentence, of which only the beginning is kept.
        since: Unix time at which it began to hold, None if unknown.
    """

    reason: str
    message: str
    since: float | None


Conditions = Mapping[str, Condition]


def holding(status: Fields) -> Conditions:
    """Return the conditions of a status that hold, by type."""
    return {
        text(one, "type"): Condition(
            text(one, "reason"), text(one, "message"), moment(one, "lastTransitionTime")
        )
        for one in objects(status, "conditions")
        if one.get("status") == "True" and text(one, "type")
    }
