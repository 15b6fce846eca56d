"""Finds failures in the growing logs of one pod, with the parser of `explain job-log`.

That parser is slow, so it only receives a limited amount of text around marks that ordinary lines
lack. A failure it finds is reported once the end of a process, of its container or of steps
confirms it, because programs also log exceptions that they survive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import islice

from rankscope_agent.contract.failures.log import FailureLimits, FailureLog
from rankscope_agent.contract.failures.signs import FailureSigns
from rankscope_agent.contract.failures.survival import SURVIVED_LINES
from rankscope_agent.contract.failures.verdict import Attempt, decide

MARKS = (
    b"Traceback (most recent call last)",
    b"failed (exitcode: ",  # torchrun's agent, once per attempt
    b"Fatal Python error",
    b"terminat",  # called by C++; and what mpirun, hydra and spawn print about processes
    b"Segmentation fault",
    b"core dumped",
    b": error: ",  # srun and slurmstepd
    b"exits with return code",  # DeepSpeed's launcher
    b" Killed ",  # a shell of its child
)
"""At least one of these accompanies every failure that ends a process, and they rarely occur
elsewhere. Each takes a quarter of a millisecond of CPU per megabyte; long ones take least."""

MAX_PIECES = 64
"""Marks after which steps are counted again within one reading (64 KiB): four for each of 16
ranks."""

MAX_MARKED = 256
"""Logs with marks of which it is known when they were written: as many as are followed."""

LIMITS = FailureLimits(signs=512, writers=256, error_files=False, survival=False)
"""Signs kept of one pod: a traceback and its launcher's line for each of 16 ranks, sixteen
times."""

TAIL_BYTES = 4096
"""Bytes kept of the text before a mark: C++ and CUDA print the reason before they abort."""

WINDOW_BYTES = 256 << 10
"""Bytes read after a mark: tracebacks of 16 ranks of 4 KiB each, and what NCCL and gloo print
meanwhile."""

ROOM_BYTES, ROOM_BYTES_PER_SECOND = 1 << 20, 16 << 10
"""Bytes that the parser reads of one pod at once, and their rate: a pod that logs one exception
after another takes a few thousandths of a core, one whose lines are made to be slow (5 ms each of
4 KiB) two hundredths."""

QUIET_SECONDS = 5.0
"""Time without additions to a failure after which it is judged: launchers check their processes
several times a second, and report all of them at once."""

STALLED_SECONDS, STALLED_STEPS = 120.0, 10.0
"""Time without lines about steps, and without any other line, after which steps have stopped."""


@dataclass(frozen=True, slots=True)
class SeenFailure:
    """The failure of one attempt according to one pod's logs.

    Args:
        cause: one of `contract.failures.causes`.
        rank: the rank that failed first; None if the logs do not show it.
        at: Unix time.
        own: whether the pod's ranks failed on their own, not because another rank went away.
    """

    cause: str
    rank: int | None
    at: float
    own: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """What a pod's logs show about its steps.

    Args:
        lines: number of lines about steps so far.
        step_seconds: duration of a step; 0 if unknown.
    """

    lines: int
    step_seconds: float


@dataclass(slots=True)
class _Reading:
    """One log: its last lines, how many there were, and its parser while it is reading."""

    tail: bytes = b""
    lines: int = 0
    parser: FailureLog | None = None
    left: int = WINDOW_BYTES


class PodFailures:
    """Failures in the logs of one pod; times are Unix seconds."""

    def __init__(self) -> None:
        self.ranks: Mapping[int, int] = {}
        """The pod's ranks by local rank, if processes show them."""
        self._began = 0.0
        self._written: dict[str, float] = {}
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
        """Unix time at which the newest mark not yet judged was read; None if there is none."""
        return self._marked

    @property
    def has_news(self) -> bool:
        """Whether `settle` has something to report immediately."""
        return bool(self._found)

    def feed(self, log: str, text: bytes, now: float) -> None:
        """Process complete lines of a log.

        Args:
            log: distinguishes the pod's logs.
            text: complete lines.
            now: when they were read.
        """
        reading = self._logs.setdefault(log, _Reading())
        self._last_text = now
        if reading.parser is None:
            reading.tail = text[-TAIL_BYTES:]
            reading.lines += text.count(b"\n")
            return
        if len(text) > min(reading.left, self._room_at(now)):
            self._close(reading)
            reading.lines += text.count(b"\n")
        else:
            self._room -= len(text)
            reading.left -= len(text)
            reading.parser.feed(text)

    def mark(self, log: str, now: float, progress: Progress, written: float | None = None) -> None:
        """Record that the next lines of a log begin with a mark.

        Args:
            log: as in `feed`.
            now: the Unix time.
            progress: the steps logged before.
            written: when they were written at the latest, if not just now.
        """
        at = now if written is None else written
        if self._marked is None:
            self._first_marked = at
        elif self._survived(progress):
            self._next(proven_only=True)
            self._first_marked = at
        if len(self._written) < MAX_MARKED:
            self._written[log] = at
        self._marked, self._lines_at_mark = now, progress.lines
        reading = self._logs.setdefault(log, _Reading())
        if reading.parser is None:
            tail = reading.tail[reading.tail.find(b"\n") + 1 :]
            # Without times the first of several ranks to fail is known by its line.
            before = reading.lines - tail.count(b"\n")
            reading.parser = FailureLog(log, self._signs, LIMITS, before)
            reading.parser.feed(tail)
        reading.left = WINDOW_BYTES

    def begin(self, began: float) -> None:
        """Record when the oldest process outside of pods began (Unix time).

        What logs show that were written before is of a job whose processes have ended.
        """
        earlier = self._written_before(began)
        if earlier and began > self._began:
            self._close_all()
            first = min(self._written[log] for log in earlier)
            self._judge(self._signs.of(earlier), first, proven_only=True)
            self._leave_out(earlier)
        self._began = began

    def _written_before(self, at: float) -> Set[str]:
        return {log for log, written in self._written.items() if written < at}

    def _leave_out(self, logs: Set[str]) -> None:
        """Forget what some logs showed."""
        self._signs = self._signs.of(self._written.keys() - logs)
        self._written = {log: at for log, at in self._written.items() if log not in logs}
        if self._written:
            self._first_marked = min(self._written.values())
        else:
            self._marked = None

    def end(self) -> None:
        """Record that a container has ended and was restarted."""
        if self._marked is not None:
            self._next(proven_only=False)

    def leave(self, log: str) -> None:
        """Forget a log that is no longer read; what it has shown still counts."""
        reading = self._logs.pop(log, None)
        if reading is not None:
            self._close(reading)

    def settle(
        self, now: float, progress: Progress, *, ended: bool, alive: bool
    ) -> Iterator[SeenFailure]:
        """Yield the failures that are confirmed by now, each once.

        Args:
            now: the Unix time.
            progress: the steps logged so far.
            ended: whether a container of the pod has failed since.
            alive: whether the pod is known not to have ended.
        """
        if self._marked is not None and (ended or now - self._marked >= QUIET_SECONDS):
            stopped = alive and self._stopped(now, progress)
            self._next(proven_only=not (ended or stopped), keep=not self._survived(progress))
        yield from self.found(now)

    def found(self, now: float, before: float = float("inf")) -> Iterator[SeenFailure]:
        """Yield the failures that have been confirmed, each once.

        Args:
            now: the Unix time.
            before: those that were logged later are kept.
        """
        found, self._found = self._found, []
        for attempt, read_at in found:
            if read_at < before:
                yield _seen(attempt, min(read_at, now), now)
            else:
                self._found.append((attempt, read_at))

    def _next(self, *, proven_only: bool, keep: bool = False) -> None:
        """Judge what was found, and start over unless it may still be confirmed."""
        self._close_all()
        if earlier := self._written_before(self._began):
            self._leave_out(earlier)
        judged = self._judge(self._signs, self._first_marked, proven_only=proven_only)
        if keep and not judged:
            return
        self._signs, self._marked = FailureSigns(), None
        self._written.clear()

    def _judge(self, signs: FailureSigns, marked: float, *, proven_only: bool) -> bool:
        """Add the failures that signs show; return False if nothing proves that it was one.

        Args:
            signs: of one attempt.
            marked: when their first mark was read.
            proven_only: whether nothing else proves it.
        """
        proven = bool(signs.ends) or any(sign.kind == "exit" for sign in signs.signs)
        if proven or not proven_only:
            _translate(signs, self.ranks)
            self._found.extend((attempt, marked) for attempt in decide(signs))
        return proven or not proven_only

    def _close_all(self) -> None:
        for reading in self._logs.values():
            self._close(reading)

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
            reading.lines = reading.parser.lines
        reading.parser, reading.tail = None, b""


def pieces(text: bytes) -> Iterator[tuple[bool, bytes]]:
    """Yield the lines in pieces, each beginning with a mark's line, and whether it does."""
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
    """Map local ranks of signs to ranks in the job, where known.

    The report that a local rank ended with code 1 adds nothing to the exceptions of other ranks, of
    which it may be one.
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
