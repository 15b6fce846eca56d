"""Reads a Kubernetes list item by item: only one object is in memory at a time.

Parsing the whole answer takes ten times its size, and the size of a list is up to those who create
pods: 110 of a megabyte each. Requesting pages instead would send every agent's request past the API
server's cache to etcd, which reads all pods of the cluster to find those of one node.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from rankscope_agent.contract.untrusted_json import bounded_number

READ_BYTES = 65536

MAX_VALUE = 16 << 20
"""Characters of one value: etcd stores no object larger than 1.5 MiB, which JSON's escapes may make
six times as long."""

_SPACE = re.compile(r"[ \t\r\n]*")
_AFTER = frozenset(" \t\r\n,]}:")
_DECODE = json.JSONDecoder(parse_int=bounded_number).raw_decode


class JsonItems:
    """The objects of the array `items` of a document, one after another.

    Args:
        read: returns up to so many bytes of the document; empty at its end.

    Attributes:
        rest: the document without its items; complete once they are exhausted.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.rest: dict[str, Any] = {}
        self._read = read
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._ended = "", 0, False

    def __iter__(self) -> Iterator[object]:
        """Yield the items.

        Raises:
            ValueError: the document is not a JSON object, its items are not an array, or a value is
                too large.
            RecursionError: a value is nested too deeply.
        """
        self._take("{")
        if self._comes("}"):
            return
        while True:
            key = self._value()
            self._take(":")
            if key == "items" and self._comes("["):
                yield from self._items()
            else:
                self.rest[str(key)] = self._value()
            if self._comes("}"):
                break
            self._take(",")
        if self.rest.get("items") is not None:
            raise ValueError("the items are not an array")

    def _items(self) -> Iterator[object]:
        if self._comes("]"):
            return
        while True:
            yield self._value()
            if self._comes("]"):
                return
            self._take(",")

    def _comes(self, character: str) -> bool:
        """Consume a character if it is the next one."""
        if self._next() != character:
            return False
        self._at += 1
        return True

    def _take(self, character: str) -> None:
        if not self._comes(character):
            raise ValueError(f"expected {character!r} at {self._text[self._at : self._at + 20]!r}")

    def _next(self) -> str:
        """Return the next character that is not white space."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise ValueError("the document ends too early")

    def _value(self) -> Any:
        """Return the next value, reading until it is complete."""
        self._next()
        while True:
            try:
                value, end = _DECODE(self._text, self._at)
            except json.JSONDecodeError:
                if not self._more():
                    raise
                continue
            # The text read so far may end in the middle of a number: -0 of -0.5.
            if self._text[end : end + 1] in _AFTER or not self._more():
                self._at = end
                return value

    def _more(self) -> bool:
        """Read twice as much as is buffered, so that no value is parsed many times."""
        if self._ended:
            return False
        held = self._text[self._at :]
        if len(held) > MAX_VALUE:
            raise ValueError(f"a value is longer than {MAX_VALUE >> 20} Mi characters")
        more = self._read(max(READ_BYTES, len(held)))
        self._ended = not more
        self._text, self._at = held + self._decoder.decode(more, final=self._ended), 0
        return True
