"""What can be wrong with a checkpoint's file, as sentences and as kinds that programs compare."""

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
    "fewer_ranks",
    "several_writers",
    "leftover",
    "stale_pointer",
    "credentials",
]

PARTIAL: frozenset[Kind] = frozenset({"truncated", "missing"})
"""Problems that an unfinished save has as well."""

DAMAGE: frozenset[Kind] = PARTIAL | {"wrong_size", "unparseable", "checksum"}
"""Problems that keep a checkpoint from being loaded, or load something else than was saved."""

UNKNOWN: frozenset[Kind] = frozenset({"unreadable", "too_large", "fewer_ranks"})
"""Problems that leave it open whether a file is whole."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with one file.

    Args:
        kind: for programs.
        file: its path relative to the directory that is examined.
        detail: the rest of the sentence: sizes, and what was expected according to what.
    """

    kind: Kind
    file: str
    detail: str


class FileProblem(Exception):  # noqa: N818 - what it is, not what went wrong
    """A file that is not whole, or may not be."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind: Kind = kind


def wrong_size(size: int, expected: int) -> FileProblem:
    """Return the problem of a file whose size differs from the expected one."""
    kind: Kind = "truncated" if size < expected else "wrong_size"
    return FileProblem(kind, f"has {size} bytes instead of {expected}")
