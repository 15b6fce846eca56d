"""Patterns whose search takes time in proportion to a line, whatever is in it: pods write it."""

from __future__ import annotations


def followed_by(head: str, tail: str, most: int | None = None) -> str:
    """Return a pattern of a head and a tail in one line.

    The head is not repeated between them; else a line of many heads would be read from each of
    them to its end. This changes nothing about which lines match.

    Args:
        head: a pattern; it need not be in a group.
        tail: likewise.
        most: number of characters between them; None for any number.
    """
    return f"(?:{head})(?:(?!{head}).){{0,{'' if most is None else most}}}(?:{tail})"
