"""Reads one JSON object member by member, and one array in it item by item, in bounded memory.

PyTorch profiler traces are single objects of up to gigabytes, nearly all of which is one array.
`json.loads` takes about ten times a file's size; here one member or item is in memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from rankscope_agent.contract.untrusted_json import bounded_number

CHUNK_CHARACTERS = 1 << 20
"""Characters read at once: some thousand items, a negligible share of any machine's memory."""

MAXIMUM_VALUE_CHARACTERS = 32 << 20
"""Largest member or item accepted: a profiler's list of all process groups of 16,384 ranks with
data, tensor and pipeline groups for each is about 20 MB."""

_SPACE = " \t\r\n"

# Names of kernels and call stacks hold unescaped tabs and line ends.
_DECODE = json.JSONDecoder(strict=False).raw_decode
_DECODE_BOUNDED = json.JSONDecoder(strict=False, parse_int=bounded_number).raw_decode
"""Takes half as long again, and reads integers of more digits than Python converts."""


class JsonStreamError(ValueError):
    """The text is not the expected JSON; the message gives the character's offset."""


class JsonStream:
    """The text of one JSON object.

    Args:
        read: returns up to that many further characters, an empty text at the end.
        maximum_characters: of the whole text; a longer one is refused.
    """

    def __init__(self, read: Callable[[int], str], maximum_characters: int) -> None:
        self._read = read
        self._left = maximum_characters
        self._maximum = maximum_characters
        self._text = ""
        self._at = 0
        self._passed = 0
        self._ended = False

    def members(self, array: str) -> Iterator[tuple[str, Any]]:
        """Yield each member's name and value; for the member `array` each item separately.

        Raises:
            JsonStreamError: it is not one whole JSON object, or too large.
        """
        self._expect("{")
        if self._next() == "}":
            return
        while True:
            name = self._value()
            self._expect(":")
            if name == array and self._next() == "[":
                for item in self._items():
                    yield array, item
            else:
                yield str(name), self._value()
            if self._separator("}"):
                return

    def _items(self) -> Iterator[Any]:
        self._expect("[")
        if self._next() == "]":
            self._at += 1
            return
        while True:
            yield self._value()
            if self._separator("]"):
                return

    def _separator(self, closing: str) -> bool:
        """Read what follows a value; return True if it is the end."""
        found = self._next()
        if found not in {",", closing}:
            raise self._error(f"{found!r}" if found else "the end", f"',' or {closing!r}")
        self._at += 1
        return found == closing

    def _expect(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise self._error(f"{found!r}" if found else "the end", f"{wanted!r}")
        self._at += 1

    def _next(self) -> str:
        """Return the next character that is not a space, without consuming it; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        """Consume one value; if the text read so far cuts it off, read on and retry."""
        self._next()
        while True:
            problem = "a value that is cut short"
            try:
                value, end = _decoded(self._text, self._at)
            except ValueError as error:
                problem = str(error)
            except RecursionError:
                raise self._error("values nested too deeply", "a trace") from None
            else:
                # A number that ends with the text may continue after it.
                if end < len(self._text) or not self._more():
                    self._at = end
                    return value
                continue
            if not self._more():
                raise self._error(problem, "a JSON value")

    def _more(self) -> bool:
        """Read on; drop what has been consumed.

        Raises:
            JsonStreamError: there is more than may be read, or one value takes too much.
        """
        if self._ended:
            return False
        if len(self._text) - self._at > MAXIMUM_VALUE_CHARACTERS:
            raise self._error("no end of a value", f"one within {MAXIMUM_VALUE_CHARACTERS}")
        # Doubling what is held keeps the retries for a long value few.
        held = self._text[self._at :]
        chunk = self._read(max(CHUNK_CHARACTERS, len(held)))
        self._left -= len(chunk)
        if self._left < 0:
            raise JsonStreamError(f"has more than {self._maximum} characters")
        self._ended = not chunk
        self._passed += self._at
        self._text, self._at = held + chunk, 0
        return not self._ended

    def _error(self, seen: str, expected: str) -> JsonStreamError:
        offset = self._passed + self._at
        return JsonStreamError(f"has {seen} at character {offset}, expected {expected}")


def _decoded(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODE(text, at)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _DECODE_BOUNDED(text, at)
