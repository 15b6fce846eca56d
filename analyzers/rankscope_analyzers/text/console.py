"""The terminal that commands print on: nothing that a job or an agent wrote can control it.

Sentences and cells make names visible where they are put together, which shows what was there.
This is the last gate, for the one that was forgotten: what no terminal shows is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from rankscope_analyzers.text.plain_lines import shown, shows


class PlainConsole(Console):
    """A console that prints its own control codes, and none that comes with the text."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable, without controls and direction marks."""
        for segment in super().render(renderable, options):
            if segment.control or shows(segment.text):
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
