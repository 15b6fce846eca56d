"""What can be wrong with a checkpoint's file, in words and as kinds that programs compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "truncated",
    "missing",
    "wrong_size",
    "unparseable",
    "checksum",
    "unreadable",
    "too_large",
    "several_writers",
    "leftover",
    "stale_pointer",
    "credentials",
]

PARTIAL: frozenset[Kind] = frozenset({"truncated", "missing"})
"""What a save that is not over looks like as well."""

DAMAGE: frozenset[Kind] = PARTIAL | {"wrong_size", "unparseable", "checksum"}
"""What keeps a checkpoint from being loaded, or loads something else than was saved."""

UNKNOWN: frozenset[Kind] = frozenset({"unreadable", "too_large"})
"""What leaves open whether a file is whole."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with one file.

    Args:
        kind: what, for programs.
        file: its path below the directory that was asked for.
        detail: the sentence's rest: sizes, what was expected, by what.
    """

    kind: Kind
    file: str
    detail: str


class FileProblem(Exception):  # noqa: N818 - what it is, not what went wrong
    """A file that is not whole, or of which that is not known."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind: Kind = kind


def wrong_size(size: int, expected: int) -> FileProblem:
    """Return what is wrong with a file of another size than expected."""
    kind: Kind = "truncated" if size < expected else "wrong_size"
    return FileProblem(kind, f"has {size} bytes instead of {expected}")
