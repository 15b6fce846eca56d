"""What of logs could not be read, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope_analyzers.text.sanitize import visible

SHOWN = 8
"""Sentences in the text; --json has them all."""


def not_read_lines(sentences: Sequence[str]) -> Iterator[str]:
    """Yield a line for each sentence, and the number of those that are not shown."""
    yield from (f"not read: {visible(sentence)}" for sentence in sentences[:SHOWN])
    if len(sentences) > SHOWN:
        yield f"not read: {len(sentences) - SHOWN} more in --json"
