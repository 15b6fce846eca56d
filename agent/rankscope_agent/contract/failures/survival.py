"""Finds out which exceptions in a log were survived: their writer goes on to print steps.

Programs print tracebacks that end nothing: of a module that is only wanted, of a tracker that
cannot be reached.
"""

from __future__ import annotations

import re
from collections import deque

SURVIVED_LINES = 3
"""Lines about different steps after an exception which prove that it was survived: a step in
progress when a rank failed may print one or two."""

MAX_WATCHED = 4096
"""Exceptions of one writer of which it is not known whether they were survived."""

MAX_NUMBERS = 8
"""Numbers of a line that identify its step: those of epoch, batch and a few counters."""

_STEP = re.compile(
    rb"(?<!micro)(?<!micro[ _-])(?:step|iter(?:ation)?|epoch|batch|update)s?[^\w\n]{1,16}"
    rb"(\d{1,12}(?:\.\d{1,6})?(?:\]\[ {0,6}\d{1,12})?)"
    rb"|%\|[^|\n]{0,200}\| {0,3}(\d{1,12})/",
    re.IGNORECASE,
)
"""The number of a step, or of a progress bar; not of a micro step, for which ranks do not wait for
one another: they go on with those of the step in which one of them failed."""

_MEASURED = re.compile(
    rb"loss|\blr\b|learning|samples|tokens|tok/|im(?:g|ages?)/s|\bms\b|grad|elapsed"
    rb"|(?:step|iter) ?time",
    re.IGNORECASE,
)
"""What lines about steps give besides its number: others count files, attempts or shards, and bars
their speed."""

_ERROR = re.compile(rb"error|fail|exception|cancel|exit|abort|terminat", re.IGNORECASE)


def step_of(words: bytes) -> tuple[bytes, ...]:
    """Return the numbers that identify the step of a line; none if it is not about a step."""
    if _MEASURED.search(words) is None or _ERROR.search(words) is not None:
        return ()
    found = []
    for match in _STEP.finditer(words):
        found.append(match[1] or match[2])
        if len(found) == MAX_NUMBERS:
            break
    return tuple(found)


class Survival:
    """Counts the steps that the writers of one log print after their exceptions."""

    def __init__(self) -> None:
        self._watched: dict[bytes, deque[tuple[int, int]]] = {}
        self._steps: dict[bytes, int] = {}
        self._recent: dict[bytes, deque[tuple[bytes, ...]]] = {}
        self._ended = -1

    @property
    def is_watching(self) -> bool:
        """Return True if lines about steps may show that an exception was survived."""
        return bool(self._watched)

    def watch(self, writer: bytes, sign: int, line: int) -> None:
        """Count the steps that a writer prints after an exception.

        Args:
            writer: of the exception and of the steps.
            sign: the exception's number.
            line: where it began.
        """
        if line <= self._ended:
            return
        watched = self._watched.setdefault(writer, deque(maxlen=MAX_WATCHED))
        watched.append((sign, self._steps.setdefault(writer, 0)))

    def feed(self, writer: bytes, step: tuple[bytes, ...]) -> list[int]:
        """Record that a writer printed a step; return the exceptions that it has survived."""
        watched = self._watched.get(writer)
        if watched is None:
            return []
        recent = self._recent.setdefault(writer, deque(maxlen=2 * SURVIVED_LINES))
        if step in recent:
            return []
        recent.append(step)
        self._steps[writer] += 1
        survived = []
        while watched and watched[0][1] + SURVIVED_LINES <= self._steps[writer]:
            survived.append(watched.popleft()[0])
        if not watched:
            del self._watched[writer]
        return survived

    def end(self, line: int) -> None:
        """Record that a process or the job ended: steps after that are of another attempt."""
        self._ended = line
        self._watched.clear()
        self._recent.clear()
