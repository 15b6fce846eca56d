"""Signs of failure found in logs, before any conclusion is drawn."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal

from rankscope_agent.contract.failures.messages import Meaning

MAX_TEXT = 400
"""Characters kept of a message."""

MAX_RANK_ERRORS = 20_000
"""Ranks of logs of which it is known that they are not silent: twice those of the largest jobs."""

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")

MAX_QUOTED = 32
"""Unexplained lines that are quoted; further ones are counted."""

MAX_WAITING_LINES = 100
"""Lines between an exception and the timeout of a rank that waited for the one it ended:
others print the batches that they add up before they wait."""

Kind = Literal["exception", "exit", "platform", "complaint", "survived", "echo"]


@dataclass(frozen=True, slots=True)
class SignLocation:
    """Where a sign was seen.

    Args:
        source: name of the log.
        line: its line number, from 1; 0 if that has no meaning.
        attempt: number of restarts of the job before it.
        rank: the rank that showed it; None if unknown.
        local: whether the rank is a local rank of its node.
        time: Unix time; None if none is printed.
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
        kind: an exception, the end of a process as reported by its launcher, a message of the
            platform, an error in one line, one that the program says it survived, or a launcher's
            report that some process ended.
        text: the line that shows it; for an exception the last line of its traceback.
        frame: the innermost frame of an exception; empty without one.
        exit_code: of an ended process; negative for a signal.
    """

    kind: Kind
    meaning: Meaning
    location: SignLocation
    text: str
    frame: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """A line that reports an error of no known kind, and the number of similar lines."""

    source: str
    line: int
    text: str
    count: int = 1


@dataclass(slots=True)
class RankEnd:
    """How torchrun reports the end of one rank.

    Args:
        root: whether torchrun considers it the root cause, which is not always right.
        ended_at: when it ended, by its node's clock, in seconds comparable only with those of other
            ranks.
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
    """Everything found in the logs of one job.

    Args:
        highest_rank: the highest rank that wrote something or was named; -1 before the first.
        attempts: the highest attempt number.
        quotes: lines that report an error of no known kind, by their text without numbers.
        beyond_limits: number of signs left out because a limit was reached.
        rank_errors: where ranks last reported an error of whatever kind, by log and rank.
    """

    signs: list[FailureSign] = field(default_factory=list)
    ends: list[RankEnd] = field(default_factory=list)
    highest_rank: int = -1
    quotes: dict[str, Quote] = field(default_factory=dict)
    attempts: int = 0
    beyond_limits: int = 0
    rank_errors: dict[tuple[str, int], SignLocation] = field(default_factory=dict)

    def of(self, logs: Collection[str]) -> FailureSigns:
        """Return what these logs alone show."""
        return FailureSigns(
            [sign for sign in self.signs if sign.location.source in logs],
            [end for end in self.ends if end.source in logs],
            self.highest_rank,
            {text: one for text, one in self.quotes.items() if one.source in logs},
            self.attempts,
            self.beyond_limits,
            {key: at for key, at in self.rank_errors.items() if at.source in logs},
        )

    def blaming(self, attempt: int) -> FailureSigns:
        """Return the same, with exceptions of unknown ranks near a victim's message not survived.

        The steps after them may be of any rank.
        """
        first: dict[str, int] = {}
        for at in (sign.location for sign in self.signs if sign.meaning.victim):
            if at.attempt == attempt:
                first[at.source] = min(at.line, first.get(at.source, at.line))

        def is_blamed(sign: FailureSign) -> bool:
            lines = first.get(sign.location.source, 0) - sign.location.line
            is_nameless = sign.kind == "survived" and sign.location.rank is None
            return is_nameless and bool(sign.frame) and 0 < lines <= MAX_WAITING_LINES

        signs = [replace(s, kind="exception") if is_blamed(s) else s for s in self.signs]
        return replace(self, signs=signs)

    def name(self, rank: int) -> None:
        """Remember that the job has this rank."""
        self.highest_rank = max(self.highest_rank, rank)

    def report(self, at: SignLocation) -> None:
        """Remember that a rank, if it is known, reported an error: it is not silent."""
        if at.rank is None or at.local:
            return
        key = (at.source, at.rank)
        if key in self.rank_errors or len(self.rank_errors) < MAX_RANK_ERRORS:
            self.rank_errors[key] = at

    def quote(self, source: str, line: int, text: str) -> None:
        """Keep an unexplained line; lines that differ only in numbers count as one."""
        like = _NUMBER.sub("0", text[:MAX_TEXT])
        known = self.quotes.get(like)
        if known is not None:
            self.quotes[like] = replace(known, count=known.count + 1)
        elif len(self.quotes) < MAX_QUOTED:
            self.quotes[like] = Quote(source, line, text[:MAX_TEXT])
        else:
            self.beyond_limits += 1
