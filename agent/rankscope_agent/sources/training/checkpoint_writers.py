"""Ranks of a job that write the same checkpoint file, whose contents the last of them decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from rankscope_agent.sources.training.spans import ONE_FILE, UNKNOWN_STEP, Span, SpanPosition

MAX_WRITES = 256
"""Newest writes that others are compared with: eight ranks that save 32 times."""

_Write = tuple[int, str, Span]


class CheckpointWriters:
    """Counts files that two ranks wrote at the same time, or after the same step.

    `paths` is None if no write of a single file was marked. Equal paths are the same file only
    within one pod, or outside of pods: what `/ckpt` is in two containers is not known here.
    """

    __slots__ = ("_writes", "paths")

    def __init__(self) -> None:
        self.paths: int | None = None
        self._writes: deque[_Write] = deque(maxlen=MAX_WRITES)

    def add(
        self,
        rank: int,
        pod_uid: str,
        ended: Iterable[Span],
        counted: SpanPosition = SpanPosition(),  # noqa: B008 - a constant
    ) -> Mapping[int, int]:
        """Process the spans of a rank that have ended since the previous call.

        Args:
            rank: that wrote them.
            pod_uid: of its pod; empty outside of pods.
            ended: the spans.
            counted: those whose files are in `paths` already.

        Returns:
            For each rank that wrote a file that another one wrote as well, when the newest such
            write ended, in nanoseconds of Unix time.
        """
        shared: dict[int, int] = {}
        for span in ended:
            if span.kind_name == "checkpoint_save" and span.flags & ONE_FILE and span.target:
                same = [
                    (other, before)
                    for other, pod, before in self._writes
                    if other != rank and pod == pod_uid and _is_one_file(span, before)
                ]
                self.paths = (self.paths or 0) + bool(same and not counted.contains(span.seq))
                self._writes.append((rank, pod_uid, span))
                for writer, write in ((rank, span), *same) if same else ():
                    shared[writer] = max(shared.get(writer, 0), write.end_unix_ns)
        return shared


def _is_one_file(one: Span, other: Span) -> bool:
    """Return True if two spans of different ranks wrote the same file at the same time."""
    if one.target != other.target:
        return False
    first, second = sorted((one, other), key=lambda span: span.start_unix_ns)
    overlap = second.start_unix_ns < first.start_unix_ns + max(first.duration_ns, 0)
    return overlap or (one.step == other.step != UNKNOWN_STEP)
