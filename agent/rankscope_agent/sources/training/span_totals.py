"""Sums up what a rank did besides steps, across restarts of its process; no I/O, no clock."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from rankscope_agent.contract.model import SPAN_OUTCOMES
from rankscope_agent.sources.training.spans import (
    AFTER_SIGTERM,
    IN_MEMORY,
    NOT_THERE,
    UNKNOWN_STEP,
    Span,
    SpanPosition,
)
from rankscope_agent.sources.training.starts import RENDEZVOUS

MOST_REPEATED = 64
"""Spans that a probe keeps for the ring that is created with the first step."""

SAVING = frozenset(("checkpoint_save", "checkpoint_staging"))
"""Kinds of spans that delay steps in order to save the state; the writing of a staged one is
concurrent."""


BLOCKING = ("evaluation", "compile")
"""Other kinds of spans that delay steps."""


class SpanTotals:
    """Checkpoints that a rank has written and loaded so far, and what it is doing now.

    `last_success_unix_ns` and `last_write_ns` are those of the newest successful one; None before
    it. `began_unix_ns` is when the oldest open span of a kind began; `refused` is the number of
    failed loads; `emergencies` are writes after SIGTERM, by outcome. `failed_unix_ns` and
    `refused_unix_ns` are when a write and a load last failed; None before the first; `blocked_ns`
    is how long saving has delayed steps, and `blocked_by_kind_ns` how long each kind of `BLOCKING`
    has.
    """

    __slots__ = (
        "_repeated", "began_unix_ns", "blocked_by_kind_ns", "blocked_ns",
        "emergencies", "failed_unix_ns", "failures", "last_step", "last_success_unix_ns",
        "last_write_ns",
        "loads", "refused", "refused_unix_ns", "write_ns", "writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.writes = self.failures = self.write_ns = self.loads = self.refused = 0
        self.blocked_ns = 0
        self.blocked_by_kind_ns = dict.fromkeys(BLOCKING, 0)
        self.failed_unix_ns: int | None = None
        self.refused_unix_ns: int | None = None
        self.emergencies: Counter[str] = Counter()
        self.last_success_unix_ns: int | None = None
        self.last_write_ns: int | None = None
        self.began_unix_ns: Mapping[str, int] = {}
        self._repeated: deque[tuple[int, int, int]] = deque(maxlen=MOST_REPEATED)
        self.last_step = (0, 0)  # creation time of its process's ring, and the step

    def add(
        self,
        ended: Iterable[Span],
        created_unix_ns: int,
        counted: SpanPosition = SpanPosition(),  # noqa: B008 - a constant
    ) -> None:
        """Add spans of a process that ended since the previous call, including interrupted ones.

        A checkpoint in memory would not survive and does not count, and a program that looks for a
        checkpoint where there is none has not loaded any.

        Args:
            ended: the spans.
            created_unix_ns: when the process's ring was created.
            counted: those that are in the totals already; they only show when something happened.
        """
        for span in ended:
            if span.flags & (IN_MEMORY | NOT_THERE) or self._is_known(span):
                continue
            if not counted.contains(span.seq):
                self._count(span)
            if span.kind_name == "checkpoint_save":
                self._date_write(span, created_unix_ns)
            elif span.kind_name == "checkpoint_load" and outcome_of(span) != "done":
                self.refused_unix_ns = max(self.refused_unix_ns or 0, span.end_unix_ns)

    def _count(self, span: Span) -> None:
        if span.kind_name in SAVING:
            self.blocked_ns += max(span.blocked_ns, 0)
        elif span.kind_name in self.blocked_by_kind_ns:
            self.blocked_by_kind_ns[span.kind_name] += max(span.blocked_ns, 0)
        done = outcome_of(span) == "done"
        if span.kind_name == "checkpoint_save":
            self.writes += 1
            self.failures += not done
            self.write_ns += span.duration_ns if done else 0
            if span.flags & AFTER_SIGTERM:
                self.emergencies[outcome_of(span)] += 1
        elif span.kind_name == "checkpoint_load":
            self.loads += 1
            self.refused += not done

    def _is_known(self, span: Span) -> bool:
        """Return True for a span that is known already: a process's next ring repeats the first.

        A probe creates one when its rank has joined others, and another with the first step.
        """
        key = span.start_unix_ns, span.seq, span.kind
        known = key in self._repeated
        self._repeated.append(key)
        return known

    def last_success_step(self, created_unix_ns: int) -> int | None:
        """Return after which step of a process the newest checkpoint was; None before the first.

        It is 0 if another process of the rank wrote it, whose steps were numbered differently.
        """
        if self.last_success_unix_ns is None:
            return None
        created, step = self.last_step
        return step if created == created_unix_ns and step != UNKNOWN_STEP else 0

    def note_open(self, still_open: Iterable[Span]) -> None:
        """Record what the newest process is doing.

        Joining others is waiting for them, which does not excuse a rank from ending steps.
        """
        began: dict[str, int] = {}
        for span in still_open:
            if span.kind_name == RENDEZVOUS:
                continue
            known = began.get(span.kind_name, span.start_unix_ns)
            began[span.kind_name] = min(known, span.start_unix_ns)
        self.began_unix_ns = began

    def _date_write(self, span: Span, created_unix_ns: int) -> None:
        end_unix_ns = span.end_unix_ns
        if outcome_of(span) != "done":
            self.failed_unix_ns = max(self.failed_unix_ns or 0, end_unix_ns)
        elif end_unix_ns > (self.last_success_unix_ns or 0):
            self.last_success_unix_ns, self.last_write_ns = end_unix_ns, span.duration_ns
            self.last_step = created_unix_ns, span.step


def outcome_of(span: Span) -> str:
    """Return the outcome of an ended span: an open one was cut off."""
    return "interrupted" if span.is_open else SPAN_OUTCOMES[span.outcome]
