"""Stacks of a Python process's threads as `faulthandler` writes them: text in, frames out.

This is what torch's worker server answers under `dump_traceback` (torch 2.13): the answering thread
comes first, the one in which the program started comes last (Python/traceback.c,
dump_traceback_threads). The text is that of an untrusted process.
"""

from __future__ import annotations

import re

from rankscope_agent.contract.flight_dump import MAX_FRAMES, MAX_TEXT, Frame
from rankscope_agent.contract.printable import printable

_THREAD = re.compile(
    r"^(?:Current thread|Thread) 0x[0-9a-f]{1,16}[^\n]*\(most recent call first\):"
)
_FRAME = re.compile(r'^  File "([^"\n]*)", line (\d{1,9}) in ([^\n]*)$')


def main_thread(text: str) -> tuple[Frame, ...]:
    """Return the frames of the main thread, innermost first; empty if there are none."""
    frames: list[Frame] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            frames.clear()
        elif (found := _FRAME.match(line)) and len(frames) < MAX_FRAMES:
            file, number, function = found.groups()
            frames.append(Frame(_shown(function), _shown(file), int(number)))
    return tuple(frames)


def _shown(text: str) -> str:
    """Return the end of a text, without characters that a terminal would interpret."""
    return printable(text[-MAX_TEXT:])
