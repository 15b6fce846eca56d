"""What logs show of a failure, one sign at a time, before anything is concluded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from rankscope_agent.contract.failures.messages import Meaning

MAX_TEXT = 400
"""Characters kept of a message."""

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")

MAX_QUOTED = 32
"""Lines quoted that nothing here explains; what is beyond them is counted."""

Kind = Literal["exception", "exit", "platform", "complaint", "survived", "echo"]


@dataclass(frozen=True, slots=True)
class SignLocation:
    """Where a sign was seen.

    Args:
        source: name of the log.
        line: its line, counted from 1; 0 where that means nothing.
        attempt: how often the job had been restarted before.
        rank: who showed it, None where that is not known.
        local: the rank counts within its node only.
        time: Unix time, None where none is printed.
    """

    source: str
    line: int
    attempt: int
    rank: int | None
    local: bool
    time: float | None


@dataclass(frozen=True, slots=True)
class FailureSign:
    """One sign of a failure.

    Args:
        kind: an exception, a process's end as its launcher tells it, a word of the platform, an
            error in one line, one that the program survived by its own words, or a launcher's
            echo that some process ended.
        text: the line that says it; of an exception the last line of its traceback.
        frame: the innermost frame of an exception, empty without one.
        exit_code: of the end of a process, below 0 for a signal.
    """

    kind: Kind
    meaning: Meaning
    location: SignLocation
    text: str
    frame: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """A line that reports an error of no known kind, and how many lines were like it."""

    source: str
    line: int
    text: str
    count: int = 1


@dataclass(slots=True)
class RankEnd:
    """How torchrun says that one rank ended.

    Args:
        root: it is what torchrun takes for the root cause, which it is not always.
        ended_at: when, by its node's clock, as seconds that compare with those of other ranks only.
    """

    source: str
    attempt: int
    root: bool
    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    exit_code: int | None = None
    ended_at: float | None = None
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FailureSigns:
    """Everything seen in the logs of one job.

    Args:
        ranks: ranks that spoke or were named.
        attempts: the highest number of an attempt.
        quotes: lines that report an error and are of no known kind, by what they say apart from
            numbers.
        beyond_limits: signs that were left out for lack of room.
    """

    signs: list[FailureSign] = field(default_factory=list)
    ends: list[RankEnd] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    quotes: dict[str, Quote] = field(default_factory=dict)
    attempts: int = 0
    beyond_limits: int = 0

    def quote(self, source: str, line: int, text: str) -> None:
        """Keep a line that nothing explains; those that differ in numbers alone count as one."""
        like = _NUMBER.sub("0", text[:MAX_TEXT])
        known = self.quotes.get(like)
        if known is not None:
            self.quotes[like] = replace(known, count=known.count + 1)
        elif len(self.quotes) < MAX_QUOTED:
            self.quotes[like] = Quote(source, line, text[:MAX_TEXT])
        else:
            self.beyond_limits += 1
