"""Reads fields of an object of the cluster; each may be missing or of another type."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

Fields = Mapping[str, Any]

LONGEST_TEXT = 253
"""Longest name in Kubernetes; longer ones are cut."""

MOST_ITEMS = 4096
"""Items of a list that are read: a job of 16,384 GPUs has 2,048 nodes."""


def within(found: object, *path: str) -> Fields:
    """Return the object at a path, an empty one if there is none."""
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def text(found: Fields, name: str) -> str:
    """Return a text, empty if there is none."""
    value = found.get(name)
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def whole(found: Fields, name: str) -> int | None:
    """Return a whole number that is not negative, None if there is none."""
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def count(found: Fields, name: str) -> int:
    """Return a whole number, 0 if there is none: Kubernetes leaves zeros out."""
    return whole(found, name) or 0


def flag(found: Fields, name: str) -> bool:
    """Return whether a field is true."""
    return found.get(name) is True


def objects(found: Fields, name: str) -> tuple[Fields, ...]:
    """Return the objects of a list, none where there is no list."""
    value = found.get(name)
    if not isinstance(value, list):
        return ()
    return tuple(one for one in value[:MOST_ITEMS] if isinstance(one, Mapping))


def moment(found: Fields, name: str) -> float | None:
    """Return a time (RFC 3339, as Kubernetes writes it) as Unix seconds, None without one."""
    try:
        at = datetime.fromisoformat(text(found, name).replace("Z", "+00:00"))
    except ValueError:
        return None
    try:
        return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
    except (OverflowError, ValueError):
        return None
