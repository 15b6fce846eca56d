"""Which versions of agents and of their clients are compatible.

The version counts changes of meaning: a member, a column or a series that goes, or says something
else than before. What is added does not count, because readers leave out what they do not know, and
do without what they miss. An agent keeps what readers of the version before need, so that agents
and readers one version apart understand each other, whichever is newer.
"""

from __future__ import annotations

API_VERSION = 1

HEADER = "Rankscope-Api-Version"
"""By which an agent states the version of each answer."""

UNSTATED = 0
"""The version of agents from before it was stated."""

_MOST_DIGITS = 6


def stated_version(header: str | None) -> int:
    """Return the version that an answer's header states.

    Raises:
        ValueError: it is no version.
    """
    if header is None:
        return UNSTATED
    if not (header.isascii() and header.isdigit() and len(header) <= _MOST_DIGITS):
        raise ValueError(f"{HEADER} is {header[:40]!r}, not a number")
    return int(header)


def mismatch(theirs: int, ours: int = API_VERSION) -> str:
    """Return why a reader of version `ours` cannot use an agent's answers, empty where it can."""
    if abs(theirs - ours) <= 1:
        return ""
    update = "update rankscope here" if theirs > ours else "update the agent"
    readable = f"{max(ours - 1, UNSTATED)} to {ours + 1}"
    return f"answers in version {theirs} of the API, and this rankscope reads {readable}: {update}"
