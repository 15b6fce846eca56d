"""Finds the lines of private keys in a text, of which the beginning or the end may be missing.

The end of a log may begin within a key, a process may die while it prints one, and ranks that share
a log may print theirs at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from rankscope_agent.contract.log_text.prefixes import split

KEY_NAME = r"[A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
"""What follows BEGIN or END in the first and last line of a key: RFC 7468, OpenSSH and OpenPGP."""

SIGN = "PRIVATE KEY"
"""A text without this is not searched any further."""

MAX_LINES = 1024
"""Lines between the first and the last line of a key: 99 of a key of 8192 bits, and those that
other ranks write meanwhile."""

_SIGN = SIGN.encode()
_MARK = re.compile(rf"-----(BEGIN|END) {KEY_NAME}".encode())
_CODED = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_CODED_PART = re.compile(rb"[A-Za-z0-9+/]{40}")
"""Longer than words, and shorter than a full line of a key, which has 64 characters or more."""

_WORD = re.compile(rb"[A-Z]?[a-z]*")


def key_lines(lines: Sequence[bytes]) -> frozenset[int]:
    """Return the numbers of the lines that hold part of a private key, counted from 0.

    These are all between a BEGIN and its END, and lines in base64 after a BEGIN or before an END.
    A line that a key begins in is not among them, since text may precede the key.
    """
    begins, ends = _marked(lines)
    if not begins and not ends:
        return frozenset()
    numbers = range(len(lines))
    near = {*_following(begins, numbers), *_following(ends, reversed(numbers))}
    coded = (number for number in near if _is_coded(lines[number]))
    return frozenset((*ends, *_between(begins, ends), *coded))


def _marked(lines: Sequence[bytes]) -> tuple[frozenset[int], frozenset[int]]:
    """Return the lines after which a key is open, and those before which one is."""
    found = {
        number: marks
        for number, line in enumerate(lines)
        if _SIGN in line and (marks := _MARK.findall(line))
    }
    return (
        frozenset(number for number, marks in found.items() if marks[-1] == b"BEGIN"),
        frozenset(number for number, marks in found.items() if marks[0] == b"END"),
    )


def _between(begins: Collection[int], ends: Collection[int]) -> Iterator[int]:
    begin: int | None = None
    for number in sorted({*begins, *ends}):
        if begin is not None and number in ends and number - begin <= MAX_LINES:
            yield from range(begin + 1, number)
        begin = number if number in begins else None


def _following(marked: Collection[int], numbers: Iterable[int]) -> Iterator[int]:
    """Yield the numbers that come soon after a marked one."""
    left = 0
    for number in numbers:
        if number in marked:
            left = MAX_LINES
        elif left:
            left -= 1
            yield number


def _is_coded(line: bytes) -> bool:
    """Return True if a line may be one of base64; single words are not, and numbers are."""
    _, own = split(line)
    own = own.strip()
    if _CODED_PART.search(own):
        return True
    return bool(_CODED.fullmatch(own)) and not _WORD.fullmatch(own)
