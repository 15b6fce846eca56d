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


_RUNNERS = (
    ("/ray/train/v2/_internal/execution/worker_group/thread_runner.py", "_run_target"),
    ("/ray/air/_internal/util.py", "run"),
)
"""Ends of files, and the functions in them, that run a training loop in a thread of its own: Ray
Train 2.60's, and that of its first version. The main thread then waits for calls."""


def training_thread(text: str) -> tuple[Frame, ...]:
    """Return the frames of the thread that trains, innermost first; empty if there are none.

    It is the main thread, which comes last, unless a framework is known to train in another one.
    """
    frames: list[Frame] = []
    trains = False
    for line in text.splitlines():
        if _THREAD.match(line):
            if trains:
                break
            frames.clear()
        elif found := _FRAME.match(line):
            file, number, function = found.groups()
            trains = trains or any(file.endswith(e) and function == f for e, f in _RUNNERS)
            if len(frames) < MAX_FRAMES:
                frames.append(Frame(_shown(function), _shown(file), int(number)))
    return tuple(frames)


def _shown(text: str) -> str:
    """Return the end of a text, without characters that a terminal would interpret."""
    return printable(text[-MAX_TEXT:])
