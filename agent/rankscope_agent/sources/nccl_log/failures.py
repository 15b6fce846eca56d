"""Finds failures in one pod's logs while they grow, with the parser of `explain job-log`.

That parser is slow. It gets only what stands around marks that ordinary lines do not have, and so
much of it. What it finds is told once the end of a process, of its container or of steps confirms
it: programs log exceptions that they survive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from rankscope_agent.contract.failures.log import FailureLimits, FailureLog
from rankscope_agent.contract.failures.signs import FailureSigns
from rankscope_agent.contract.failures.verdict import Attempt, decide

MARKS = (
    b"Traceback (most recent call last)",
    b"failed (exitcode: ",  # torchrun's agent, once for each attempt
    b"Fatal Python error",
    b"terminat",  # called by C++, and what mpirun, hydra and spawn say of processes
    b"Segmentation fault",
    b"core dumped",
    b": error: ",  # srun and slurmstepd
    b"exits with return code",  # DeepSpeed's launcher
    b" Killed ",  # a shell of its child
)
"""One of these stands beside every failure that ends a process, and seldom anywhere else. Each
costs a quarter of a millisecond of CPU for each megabyte; long ones cost least."""

MAX_PIECES = 64
"""Marks after which steps are counted anew within one reading (64 KiB): four of 16 ranks each."""

LIMITS = FailureLimits(signs=512, writers=256, error_files=False)
"""Of one pod: a traceback and its launcher's word for each of 16 ranks, sixteen times."""

TAIL_BYTES = 4096
"""Kept of what stands before a mark: C++ and CUDA say why before they abort."""

WINDOW_BYTES = 256 << 10
"""Read after a mark: tracebacks of 16 ranks of 4 KiB each, and what NCCL and gloo say meanwhile."""

ROOM_BYTES, ROOM_BYTES_PER_SECOND = 1 << 20, 16 << 10
"""What the parser reads of one pod at once, and goes on reading: a pod that logs one exception
after the other takes a few thousandths of a core."""

QUIET_SECONDS = 5.0
"""How long nothing must be added to a failure for it to be judged: launchers look at their
processes several times a second, and tell of all of them at once."""

SURVIVED_LINES = 3
"""Lines about steps after an exception that prove it to be survived: a step that was under way when
a rank failed may print one or two."""

STALLED_SECONDS, STALLED_STEPS = 120.0, 10.0
"""How long neither a step nor any other line must come for steps to have stopped."""


@dataclass(frozen=True, slots=True)
class SeenFailure:
    """One attempt's failure as one pod's logs tell it.

    Args:
        cause: of `contract.failures.causes`.
        rank: who failed first; None where the logs do not tell.
        at: Unix time.
        own: the pod's ranks failed by themselves, not for another rank that went away.
    """

    cause: str
    rank: int | None
    at: float
    own: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """What a pod's logs say of its steps.

    Args:
        lines: about steps, so far.
        step_seconds: how long one takes; 0 where that is not known.
    """

    lines: int
    step_seconds: float


@dataclass(slots=True)
class _Reading:
    """One log: its last lines, and the parser while it reads."""

    tail: bytes = b""
    parser: FailureLog | None = None
    left: int = WINDOW_BYTES


class PodFailures:
    """Failures in the logs of one pod; times are Unix seconds."""

    def __init__(self) -> None:
        self.ranks: Mapping[int, int] = {}
        """The pod's ranks by those within the node, where processes tell."""
        self._logs: dict[str, _Reading] = {}
        self._signs = FailureSigns()
        self._room = float(ROOM_BYTES)
        self._filled: float | None = None
        self._marked: float | None = None
        self._first_marked = 0.0
        self._lines_at_mark = 0
        self._last_text = 0.0
        self._found: list[tuple[Attempt, float]] = []

    @property
    def marked_at(self) -> float | None:
        """When the newest mark that is not judged yet was read; None where there is none."""
        return self._marked

    @property
    def has_news(self) -> bool:
        """Whether `settle` has something to tell at once."""
        return bool(self._found)

    def feed(self, log: str, text: bytes, now: float) -> None:
        """Take in whole lines of a log.

        Args:
            log: tells the pod's logs apart.
            text: whole lines.
            now: when they were read.
        """
        reading = self._logs.setdefault(log, _Reading())
        self._last_text = now
        if reading.parser is None:
            reading.tail = text[-TAIL_BYTES:]
            return
        if len(text) > min(reading.left, self._room_at(now)):
            self._close(reading)
        else:
            self._room -= len(text)
            reading.left -= len(text)
            reading.parser.feed(text)

    def mark(self, log: str, now: float, progress: Progress) -> None:
        """Note that what comes next of a log begins with a mark.

        Args:
            log: as of `feed`.
            now: the time.
            progress: what was logged of steps before.
        """
        if self._marked is None:
            self._first_marked = now
        elif self._survived(progress):
            self._next(proven_only=True)
            self._first_marked = now
        self._marked, self._lines_at_mark = now, progress.lines
        reading = self._logs.setdefault(log, _Reading())
        if reading.parser is None:
            reading.parser = FailureLog(log, self._signs, LIMITS)
            reading.parser.feed(reading.tail[reading.tail.find(b"\n") + 1 :])
        reading.left = WINDOW_BYTES

    def end(self) -> None:
        """Take in that a container has ended and was started again."""
        if self._marked is not None:
            self._next(proven_only=False)

    def settle(
        self, now: float, progress: Progress, *, ended: bool, alive: bool
    ) -> Iterator[SeenFailure]:
        """Yield the failures that are confirmed by now, each once.

        Args:
            now: the time.
            progress: what was logged of steps so far.
            ended: a container of the pod failed since.
            alive: the pod is known not to have ended.
        """
        if self._marked is not None and (ended or now - self._marked >= QUIET_SECONDS):
            stopped = alive and self._stopped(now, progress)
            self._next(proven_only=not (ended or stopped), keep=not self._survived(progress))
        found, self._found = self._found, []
        for attempt, read_at in found:
            yield _seen(attempt, min(read_at, now), now)

    def _next(self, *, proven_only: bool, keep: bool = False) -> None:
        """Judge what was found, and begin anew unless it may still be confirmed."""
        for reading in self._logs.values():
            self._close(reading)
        proven = bool(self._signs.ends) or any(s.kind == "exit" for s in self._signs.signs)
        if proven or not proven_only:
            _translate(self._signs, self.ranks)
            self._found.extend((attempt, self._first_marked) for attempt in decide(self._signs))
        elif keep:
            return
        self._signs, self._marked = FailureSigns(), None

    def _survived(self, progress: Progress) -> bool:
        return progress.lines >= self._lines_at_mark + SURVIVED_LINES

    def _stopped(self, now: float, progress: Progress) -> bool:
        patience = max(STALLED_SECONDS, STALLED_STEPS * progress.step_seconds)
        trained = self._lines_at_mark >= SURVIVED_LINES
        return trained and not self._survived(progress) and now - self._last_text >= patience

    def _room_at(self, now: float) -> int:
        passed = 0.0 if self._filled is None else max(0.0, now - self._filled)
        self._room = min(float(ROOM_BYTES), self._room + passed * ROOM_BYTES_PER_SECOND)
        self._filled = now
        return int(self._room)

    def _close(self, reading: _Reading) -> None:
        if reading.parser is not None:
            reading.parser.finish()
        reading.parser, reading.tail = None, b""


def pieces(text: bytes) -> Iterator[tuple[bool, bytes]]:
    """Yield the lines in pieces that begin with a mark's line, and whether they do."""
    marks = [mark for mark in MARKS if mark in text]
    if not marks:
        yield False, text
        return
    offsets = (at for mark in marks for at in islice(_offsets(text, mark), MAX_PIECES))
    begins = sorted({text.rfind(b"\n", 0, at) + 1 for at in offsets})[:MAX_PIECES]
    if begins[0] > 0:
        yield False, text[: begins[0]]
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        yield True, text[begin:end]


def _offsets(text: bytes, mark: bytes) -> Iterator[int]:
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + len(mark))


def _seen(attempt: Attempt, read_at: float, now: float) -> SeenFailure:
    first = attempt.first
    if first is None:
        return SeenFailure(attempt.cause, None, read_at, own=False)
    at = read_at if first.time is None else min(first.time, now)
    return SeenFailure(attempt.cause, None if first.local else first.rank, at, own=True)


def _translate(signs: FailureSigns, ranks: Mapping[int, int]) -> None:
    """Give signs whose rank counts within the node the rank in the job, where that is known.

    That one of unknown rank ended with code 1 says no more than the exceptions of others, of whom
    it may be one.
    """
    translated = []
    spoken = any(sign.kind != "exit" for sign in signs.signs)
    named = {(end.source, end.local_rank) for end in signs.ends}
    for sign in signs.signs:
        at = sign.location
        known = ranks.get(at.rank) if at.local and at.rank is not None else None
        if known is not None:
            translated.append(replace(sign, location=replace(at, rank=known, local=False)))
        elif not (
            at.local
            and spoken
            and (sign.kind, sign.exit_code) == ("exit", 1)
            and (at.source, at.rank) not in named
        ):
            translated.append(sign)
    signs.signs = translated
