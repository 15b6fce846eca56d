"""The terminal that commands print on: text of jobs and agents cannot control it.

Sentences and cells escape names where they are composed, so that readers see what was there. The
console replaces unprintable characters in any name that was not escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    Group,
    RenderableType,
    RenderHook,
    RenderResult,
)
from rich.segment import Segment

from rankscope_analyzers.text.plain_lines import shown, shows

_BLANKS_BEFORE_LINE_END = re.compile(r" +(?=\n)")


class PlainConsole(Console):
    """A console that emits its own control codes and none that are part of the text.

    Its lines have no blanks at their ends, with which Rich fills tables: what is copied into a
    ticket or compared would contain them.
    """

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
    console = PlainConsole(no_color=no_color, stderr=stderr, highlight=False)
    console.push_render_hook(_Trimming())
    return console


class _Trimming(RenderHook):
    """Removes the blanks at the ends of lines from what is printed."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Trimmed(Group(*renderables))]


@dataclass(frozen=True, slots=True)
class _Trimmed:
    whole: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return _without_blanks_at_ends(console.render(self.whole, options))


def _without_blanks_at_ends(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Yield segments without the blanks before a line's end, in whichever of them these are."""
    held: list[Segment] = []
    for segment in segments:
        if segment.control or not segment.text.strip(" "):
            held.append(segment)
            continue
        if segment.text.lstrip(" ").startswith("\n"):
            held = [one for one in held if one.control]
        yield from held
        text = _BLANKS_BEFORE_LINE_END.sub("", segment.text)
        kept = text.rstrip(" ")
        yield Segment(kept, segment.style)
        held = [Segment(text[len(kept) :], segment.style)] if kept != text else []
    yield from held
