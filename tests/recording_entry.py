"""An entry that opens nothing and records deadlines; answers that record how they are read."""

from __future__ import annotations

from email.message import Message


class Reader:
    """An answer of endless length that notes how much of it was read."""

    length = None

    def __init__(self, most=1 << 62):
        self.headers, self.left, self.read_bytes, self.sizes = Message(), most, 0, []

    def read1(self, size):
        self.sizes.append(size)
        piece = bytes(min(size, self.left))
        self.left -= len(piece)
        self.read_bytes += len(piece)
        return piece

    def read(self, size):
        self.sizes.append(size)
        return b"{}"

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Entry:
    """Opens nothing, and notes by when answers had to be there."""

    scheme, shows = "http", False

    def __init__(self, answer=None):
        self.answer, self.deadlines = answer or Reader(2), []

    def open(self, request, deadline):
        self.deadlines.append(deadline)
        return self.answer
