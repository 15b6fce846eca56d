"""The terminal that commands print on: text of jobs and agents cannot control it.

Sentences and cells escape names where they are composed, so that readers see what was there. The
console replaces unprintable characters in any name that was not escaped.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from rankscope_analyzers.text.plain_lines import shown, shows


class PlainConsole(Console):
    """A console that emits its own control codes and none that are part of the text."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable, without controls and direction marks."""
        for segment in super().render(renderable, options):
            if segment.control or shows(segment.text):
                yield segment
            else:
                yield Segment(shown(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Leave it to the command line that the reader is gone, instead of ending with code 1.

        Raises:
            BrokenPipeError: in any case.
        """
        raise BrokenPipeError


def open_console(*, no_color: bool, stderr: bool = False) -> Console:
    """Return the console that a command prints on.

    Args:
        no_color: print plain text.
        stderr: print to standard error because programs read standard output.
    """
    return PlainConsole(no_color=no_color, stderr=stderr, highlight=False)
