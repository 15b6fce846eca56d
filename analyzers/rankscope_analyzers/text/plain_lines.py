"""Lines on a terminal, without control sequences; `console` does the same for tables.

It needs nothing but the standard library: a command that explains a log must not wait for rich.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def write_lines(lines: Iterable[str]) -> None:
    """Print lines of any length unchanged, except for unprintable characters."""
    sys.stdout.writelines(f"{shown(line)}\n" for line in lines)


def shown(text: str) -> str:
    """Return a text in which every character except line feeds is printable and has a width."""
    return text if shows(text) else "".join(_replaced(text))


def shows(text: str) -> bool:
    """Return True if a terminal shows every character of a text except its line feeds."""
    return text.isprintable() or text.replace("\n", "").isprintable()


def _replaced(text: str) -> Iterator[str]:
    for letter in text:
        yield letter if letter == "\n" or letter.isprintable() else REPLACEMENT
