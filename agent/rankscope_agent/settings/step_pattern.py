"""Validates a user's own pattern for lines about steps, so that no line takes it long to match.

The pattern comes from an administrator, the lines from anybody. A regular expression that
backtracks can take years for a crafted line; this module limits how, and how often, one may.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

GROUPS = frozenset(
    (
        *("step", "loss", "seconds", "milliseconds", "per_second"),
        *("samples_per_second", "tokens_per_second"),
    )
)
"""Permitted names of groups: the values that a line may contain."""

MAX_PATTERN = 400
"""Characters of a pattern: the longest of our own have fewer than 250."""

LEAST_WORDS = 3
"""Minimum number of plain characters with which every matching line begins: logs are searched for
them."""

MAX_LINE = 512
"""Bytes of a line after these characters that are matched."""

MOST_TRIES = 200_000_000
"""Ways in which all repetitions of a pattern can divide a line if none excludes another: those of
three of any number, or of one and five numbers of up to twelve digits. The worst line found for
such a pattern took 0.4 s."""


@dataclass(frozen=True, slots=True)
class StepPattern:
    """A validated pattern.

    Args:
        mark: the beginning of every matching line.
        expression: what is matched from there.
    """

    mark: bytes
    expression: re.Pattern[bytes]


def parse_step_pattern(text: str) -> StepPattern | None:
    r"""Read a pattern such as `step=(?P<step>\d+) .*loss=(?P<loss>\S+)`; an empty text is None.

    Raises:
        ValueError: it is not a regular expression, or not a permitted one; the message says why.
    """
    if not text:
        return None
    if len(text) > MAX_PATTERN or not text.isascii():
        raise ValueError(f"expected at most {MAX_PATTERN} ASCII characters, got {text!r}")
    try:
        expression = re.compile(text.encode())
        parsed = _parser().parse(text.encode())
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    if expression.flags & re.IGNORECASE:
        raise ValueError(
            "expected no (?i), because lines are found by the characters with which the pattern"
            " begins, as they are written; begin with these as your program prints them, and put"
            f" the rest into (?i:...), got {text!r}"
        )
    named = set(expression.groupindex)
    if named - GROUPS or not named & {"step", "loss"}:
        known = ", ".join(sorted(GROUPS))
        raise ValueError(f"expected a group named step or loss, others of {known}, got {text!r}")
    mark = _mark(parsed)
    if len(mark) < LEAST_WORDS:
        raise ValueError(
            f"expected a pattern that begins with {LEAST_WORDS} plain characters or more, by which"
            f" lines are found, got {text!r}"
        )
    _check_ways(list(_repeats(parsed, inside=False)), text)
    return StepPattern(mark, expression)


def _parser() -> Any:
    """Return the parser behind `re`, which has moved between versions."""
    return importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


def _mark(parsed: Any) -> bytes:
    """Return the plain characters with which a pattern begins."""
    mark = bytearray()
    for operation, argument in parsed:
        if str(operation) != "LITERAL":
            break
        mark.append(argument)
    return bytes(mark)


def _repeats(parsed: Any, *, inside: bool) -> Iterator[tuple[int, int]]:
    """Yield the minimum and the maximum number of each repetition.

    Raises:
        ValueError: one is inside another, or the pattern contains lookarounds or back-references.
    """
    for operation, argument in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, body = argument
            if inside:
                raise ValueError("expected no repetitions inside others")
            yield least, min(int(most), MAX_LINE)
            yield from _repeats(body, inside=most > 1)
        elif name == "SUBPATTERN":
            yield from _repeats(argument[-1], inside=inside)
        elif name == "BRANCH":
            if inside:
                raise ValueError("expected no alternatives inside repetitions")
            yield 1, len(argument[1])
            for branch in argument[1]:
                yield from _repeats(branch, inside=inside)
        elif name not in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT"):
            raise ValueError("expected only characters, classes, groups, | and repetitions")


def _check_ways(repeats: list[tuple[int, int]], text: str) -> None:
    tries = math.prod(most - least + 1 for least, most in repeats)
    if tries > MOST_TRIES:
        raise ValueError(
            f"expected at most three repetitions of any number (* or +), got {text!r}; one of them"
            r" may come with numbers such as \d{1,12}, which are limited"
        )
