"""The terminal that commands print on: nothing that a job or an agent wrote can control it.

Sentences and cells make names visible where they are put together, which shows what was there.
This is the last gate, for the one that was forgotten: what no terminal shows is replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class PlainConsole(Console):
    """A console that prints its own control codes, and none that comes with the text."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable, without controls and direction marks."""
        for segment in super().render(renderable, options):
            if segment.control or _shows(segment.text):
                yield segment
            else:
                yield Segment(shown(segment.text), segment.style)


def open_console(*, no_color: bool, stderr: bool = False) -> Console:
    """Return what a command prints on.

    Args:
        no_color: print plain text.
        stderr: print to standard error, as standard output is for programs.
    """
    return PlainConsole(no_color=no_color, stderr=stderr, highlight=False)


def write_lines(lines: Iterable[str]) -> None:
    """Print lines of any length as they are, but for what no terminal shows."""
    sys.stdout.writelines(f"{shown(line)}\n" for line in lines)


def shown(text: str) -> str:
    """Return a text whose every character but the line feed shows and has a width."""
    return text if _shows(text) else "".join(_replaced(text))


def _shows(text: str) -> bool:
    return text.isprintable() or text.replace("\n", "").isprintable()


def _replaced(text: str) -> Iterator[str]:
    for letter in text:
        yield letter if letter == "\n" or letter.isprintable() else REPLACEMENT
