"""Parses the text of a dcgm-exporter page into samples; `dcgm` interprets them.

The output of exporters in use is looser than the format: labels may be separated by a comma and a
space, names by several spaces, and samples need not follow their headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_LINES = 50_000
"""Lines that are read: 16 GPUs of 7 MIG devices with 100 fields make 11,200."""

MAX_LINE_CHARACTERS = 4096
"""A longer line is not from dcgm-exporter, whose labels are names and identifiers."""

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?[0-9]+)?\s*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class PageSample:
    """One line of the page."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse_page(text: str) -> Iterator[PageSample | None]:
    """Yield the samples of a page, and None for each line that is neither sample nor comment."""
    for number, line in enumerate(text.splitlines()):
        if number >= MAX_LINES:
            return
        line = line.strip()
        if line and not line.startswith("#"):
            yield _sample(line)


def _sample(line: str) -> PageSample | None:
    if len(line) > MAX_LINE_CHARACTERS:
        return None
    match = _SAMPLE.fullmatch(line)
    labels = _labels(match[2] or "") if match else None
    if match is None or labels is None:
        return None
    try:
        return PageSample(match[1], labels, float(match[3]))
    except ValueError:
        return None


def _labels(text: str) -> dict[str, str] | None:
    """Return the labels; None if the text contains anything else."""
    labels = {}
    at = 0
    text = text.strip()
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return None
        labels[match[1]] = _ESCAPE.sub(_unescape, match[2])
        at = match.end()
    return labels


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
