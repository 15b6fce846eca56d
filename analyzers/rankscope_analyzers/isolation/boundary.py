"""The boundary for unexpected errors: an error costs only one job or one agent's response.

Pods, agents and logs write what is analysed, so it can hold things that no analyzer expects. Any
exception that it raises is a defect of Rankscope: it is caught here and nowhere else, reported for
the job that it costs, counted, and logged with its traceback.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from rankscope_analyzers.text.sanitize import visible

Result = TypeVar("Result")

Part = Literal["source", "timing", "layer", "report", "look"]
"""What was being computed: the content of an agent's response or of a trace, a verdict on a job's
step times, one layer's conclusions about a job, its report, or the whole look at all jobs."""

PARTS: tuple[Part, ...] = ("source", "timing", "layer", "report", "look")

REASON_CHARACTERS = 300
"""Limit of messages, as they quote what they were raised on, which may be a whole file."""

MOST_FRAMES = 20
"""Limit of a traceback's frames: endless recursion has a thousand."""

TRACE_CHARACTERS = 16_000
"""Limit of a traceback's length: twenty frames and a usual message are a tenth of that."""

OURS = "rankscope_"
"""Prefixes of our packages' directories: a line in NumPy says less than the one above it."""

ERRORS_KEPT = 4096
"""Errors that are remembered as logged; the oldest is forgotten first and logged again."""


@dataclass(frozen=True, slots=True)
class AnalysisError:
    """A part that is missing because something raised.

    Args:
        part: what was being computed.
        about: the job or agent that it costs, empty for all.
        reason: type and message of the exception.
        location: file and line that raised it.
        trace: its traceback.
    """

    part: Part
    about: str
    reason: str
    location: str
    trace: str

    def __str__(self) -> str:
        """Return what is missing, and that it is not the job's fault."""
        return (
            f"{_MISSING[self.part]}: {self.reason} at {self.location}, which is a defect of"
            " Rankscope"
        )


_MISSING = {
    "source": "what it answers or holds",
    "timing": "a verdict on its step times",
    "layer": "one of its layers",
    "report": "what its layers say together",
    "look": "everything that was read",
}


def attempt(part: Part, about: str, make: Callable[[], Result]) -> Result | AnalysisError:
    """Return the result of `make`, or the error that it raised.

    That includes RecursionError and MemoryError: deeply nested or very long input causes them.
    Expected failures are to be caught inside, with their own message.

    Args:
        part: what is being computed.
        about: the job or agent that an error costs.
        make: computes it.
    """
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - the isolation that all other verdicts stand on
        return _error_of(part, about, error)


def _error_of(part: Part, about: str, error: Exception) -> AnalysisError:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames[1:] if OURS in frame.filename]
    where = (ours or frames)[-1]
    return AnalysisError(
        part,
        about,
        visible(f"{type(error).__name__}: {error}".rstrip(": "), REASON_CHARACTERS),
        f"{Path(where.filename).name}:{where.lineno}",
        "".join(traceback.format_exception(error, limit=-MOST_FRAMES))[-TRACE_CHARACTERS:],
    )


class ErrorLog:
    """Writes each error once, with its traceback.

    Args:
        write: takes a line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._written: dict[tuple[str, str, str, str], None] = {}

    def note(self, errors: Iterable[AnalysisError]) -> None:
        """Write those that were not written before; the same line may raise for several jobs."""
        for error in errors:
            # Not by its message, which may hold a number that differs at each look.
            key = (error.part, error.about, error.reason.partition(":")[0], error.location)
            known = key in self._written
            self._written.pop(key, None)
            self._written[key] = None
            if not known:
                subject = f"{error.about}: " if error.about else ""
                self._write(visible(f"{subject}{error}"))
                for line in error.trace.splitlines():
                    self._write(visible(line))
        while len(self._written) > ERRORS_KEPT:
            del self._written[next(iter(self._written))]
