"""Texts of others without what a terminal would obey."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text with a space in place of each character that does not print."""
    # Nearly every text prints as it is, and to see that takes a hundredth of the rest.
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
