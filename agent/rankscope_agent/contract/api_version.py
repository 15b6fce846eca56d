"""Which versions of agents and of their clients are compatible.

The version changes when a meaning changes: a member, a column or a series is removed or is given a
different meaning. Additions do not change it, because readers ignore what they do not know and work
without what is missing. An agent keeps what readers of the previous version need, so agents and
readers that are one version apart understand each other, whichever is newer.
"""

from __future__ import annotations

API_VERSION = 1

HEADER = "Rankscope-Api-Version"
"""The header in which an agent states the version of each answer."""

UNSTATED = 0
"""The version of agents that do not state one."""

_MOST_DIGITS = 6


def stated_version(header: str | None) -> int:
    """Return the version that an answer's header states.

    Raises:
        ValueError: the header is not a number.
    """
    if header is None:
        return UNSTATED
    if not (header.isascii() and header.isdigit() and len(header) <= _MOST_DIGITS):
        raise ValueError(f"{HEADER} is {header[:40]!r}, not a number")
    return int(header)


def mismatch(theirs: int, ours: int = API_VERSION) -> str:
    """Return why a reader of version `ours` cannot use an agent's answers; empty if it can."""
    if abs(theirs - ours) <= 1:
        return ""
    update = "update rankscope here" if theirs > ours else "update the agent"
    readable = f"{max(ours - 1, UNSTATED)} to {ours + 1}"
    return f"answers in version {theirs} of the API, and this rankscope reads {readable}: {update}"
