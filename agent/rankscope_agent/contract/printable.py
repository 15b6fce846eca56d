"""Sanitizes text written by others for terminals."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text in which each non-printable character is replaced by a space."""
    # Nearly every text is printable, and checking that takes a hundredth of the time.
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
