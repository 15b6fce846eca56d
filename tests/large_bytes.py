"""Bytes that say that they are many, so that a limit is reached without them."""

from __future__ import annotations


class Large(bytes):
    """Bytes that say that they are many more than they are."""

    def __new__(cls, length, text=b""):
        made = super().__new__(cls, text)
        made.length = length
        return made

    def __len__(self):
        return self.length
