"""Damages inputs at random, by a seed: the same damage in every run, without any instrumentation.

Coverage-guided fuzzing finds more for the same number of inputs (`guided`); this needs only Python,
and takes milliseconds.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

MOST_DAMAGES = 4
LONGEST_BYTES = 1 << 16
"""Bytes of an input: parsers treat longer ones in the same way."""

TOKENS = (
    *(b"\0", b"\xff", b"\x80", b"\n", b"\r", b"\x1b[31m", b"\xed\xa0\x80", b"\xc2\x85"),
    *(b"-1", b"0", b"1e999", b"-1e999", b"NaN", b"Infinity", b"9" * 20, b"9" * 400, b"0x1", b"1.5"),
    *(b"null", b"true", b"{}", b"[]", b'""', b'"\\ud800"', b"[" * 200, b'{"a":' * 200),
    *(b"\xff\xff\xff\x7f", b"\xff" * 8, b"\0" * 8, b"\x80" * 10, "\u0661\u00b2".encode()),
)
"""Tokens that break parsers: signs, limits of numbers, half pairs of surrogates, deep nesting,
other alphabets' digits."""

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e308, 10**25, 10**400, float("inf"), float("nan")),
    *("", "x", "\ud800", "\x1b[31m", "1e999", "../../etc", [], {}, [[]], {"a": {}}, [None] * 40),
)
"""Replacements for a member of a JSON document."""

Damage = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def mutated(seed: int, count: int, seeds: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the seeds themselves, then `count` damaged ones."""
    yield from seeds
    drawn = random.Random(seed)  # noqa: S311 - repeatable
    for _ in range(count):
        data = drawn.choice(seeds)
        for _ in range(drawn.randint(1, MOST_DAMAGES)):
            data = drawn.choice(DAMAGES)(drawn, data, seeds)
        yield data[:LONGEST_BYTES]


def _place(drawn: random.Random, data: bytes) -> tuple[int, int]:
    """Return a range, usually a short one."""
    at = drawn.randint(0, len(data))
    return at, min(len(data), at + drawn.choice((0, 1, 1, 2, 4, 8, 32, 200)))


def _flip(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = drawn.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << drawn.randrange(8)]) + data[at + 1 :]


def _remove(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _place(drawn, data)
    return data[:begin] + data[end:]


def _repeat(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _place(drawn, data)
    return data[:end] + data[begin:end] * drawn.choice((1, 2, 50)) + data[end:]


def _insert(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _place(drawn, data)
    return data[:begin] + drawn.choice(TOKENS) + data[drawn.choice((begin, end)) :]


def _scalar(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Replace a number or a text with a token, which leaves the surrounding syntax intact."""
    begin = drawn.randint(0, len(data))
    marks = [at for at in (data.find(mark, begin) for mark in (b":", b"=", b",", b" ")) if at >= 0]
    if not marks:
        return data
    first = min(marks) + 1
    ends = [at for at in (data.find(mark, first) for mark in (b",", b"}", b"]", b"\n")) if at >= 0]
    return data[:first] + drawn.choice(TOKENS) + data[min(ends, default=len(data)) :]


def _member(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Replace or remove a part of a JSON document, or of a line with one."""
    lines = data.split(b"\n")
    at = drawn.randrange(len(lines))
    whole = drawn.random() < 0.5 or len(lines) == 1
    try:
        document = json.loads(data if whole else lines[at])
    except (ValueError, RecursionError):
        return data
    changed = json.dumps(_changed(drawn, document)).encode()
    if whole:
        return changed
    lines[at] = changed
    return b"\n".join(lines)


def _changed(drawn: random.Random, document: Any) -> Any:
    """Return a document with one randomly chosen part changed or removed."""
    found = copy.copy(document)
    if not isinstance(found, dict | list) or not found or drawn.random() < 0.1:
        return drawn.choice(ODD_VALUES)
    place = drawn.choice(list(found) if isinstance(found, dict) else range(len(found)))
    if drawn.random() < 0.1:
        del found[place]
    else:
        found[place] = _changed(drawn, found[place])
    return found


def _cut(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: drawn.randint(0, len(data))]


def _splice(drawn: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = drawn.choice(seeds)
    return data[: drawn.randint(0, len(data))] + other[drawn.randint(0, len(other)) :]


BYTES: Sequence[Damage] = (_flip, _flip, _remove, _repeat, _insert, _scalar, _cut, _splice)
DAMAGES: Sequence[Damage] = (*BYTES, *(_member,) * 6)
"""Mutations of JSON leave everything else unchanged."""
