"""A job's step time from the periodicity of collectives in NCCL's log (NCCL_DEBUG_SUBSYS=COLL).

Each step launches the same collectives in the same order, so the sequence repeats once per step. If
micro-batches launch the same collectives as whole steps, the period is that of a micro-batch: the
log does not distinguish them.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from itertools import accumulate
from operator import eq, sub
from statistics import median

from rankscope_agent.contract.log_text.prefixes import unix_seconds
from rankscope_agent.sources.nccl_log.step_lines.values import seconds

MARK = b": opCount "

WINDOW = 8192
"""Collectives remembered: four steps of 2,000, more than FSDP launches for the largest models."""

MAX_SHAPES = 4096
"""Distinct collectives."""

MINIMUM_REPEATS = 4
"""Repetitions before a period is accepted: fewer may occur by chance."""

SETTLED_RECORDS = 1024
"""Collectives before a period is accepted. A forward pass over identical layers is periodic as
well; the deepest models in use have some 130 layers with up to four collectives each."""

SETTLED_SECONDS = 60.0
"""Time after which fewer collectives suffice: no forward pass lasts four minutes."""

MAX_DISTANCES = 64
"""Distances examined: jobs have fewer than twenty, and each takes half a millisecond."""

MINIMUM_MATCH = 0.95
"""Minimum share of collectives followed by an equal one a period later. Evaluations, checkpoints
and lost lines account for the rest."""

QUIET_RECORDS = 4096
"""Collectives of other processes after which the followed process is considered ended."""

READ_SPAN_SECONDS = 30.0
"""Time span over which times of reading, a second apart, determine a period well enough."""

PRIME = (1 << 61) - 1
"""Modulus of the weights by which sections are compared: different sections have different sums."""

_PREFIX = re.compile(
    rb"(?:^|[^\w.-])([\w.-]{1,255}:\d{1,10}):\d{1,10} \[-?\d{1,10}\] NCCL INFO (\w{1,40})$"
)
_SHAPE = re.compile(
    rb": opCount [0-9a-f]{1,16} sendbuff \S{1,20} recvbuff \S{1,20} (?:acc \S{1,20} )?"
    rb"(count \d{1,19} datatype \d{1,3} op \d{1,3} root -?\d{1,8} comm 0x[0-9a-f]{1,16})"
)


class CollectivePeriod:
    """Follows the collectives of one process of a pod: all of a job have the same period."""

    def __init__(self) -> None:
        self._process: bytes | None = None
        self._silence = 0
        self._shapes: dict[tuple[bytes, bytes], int] = {}
        self._order: deque[int] = deque(maxlen=WINDOW)
        self._prefixes: deque[bytes] = deque(maxlen=WINDOW)
        self._read: deque[float | None] = deque(maxlen=WINDOW)

    def feed(self, line: bytes, at: int, written: float | None) -> bool:
        """Process a line that contains `MARK`; return True if it is NCCL's.

        Args:
            line: the line.
            at: position of `MARK`.
            written: when it was read, if that was soon after it was written.
        """
        prefix = _PREFIX.search(line, max(0, at - 400), at)
        shape = _SHAPE.match(line, at)
        if prefix is None or shape is None:
            return False
        if self._is_followed(prefix[1]):
            key = (prefix[2], shape[1])
            if key not in self._shapes and len(self._shapes) >= MAX_SHAPES:
                self._begin(prefix[1])
            self._order.append(self._shapes.setdefault(key, len(self._shapes)))
            self._prefixes.append(line[: prefix.start(1)][:80])
            self._read.append(written)
        return True

    def _is_followed(self, process: bytes) -> bool:
        if process == self._process:
            self._silence = 0
            return True
        self._silence += 1
        if self._process is not None and self._silence < QUIET_RECORDS:
            return False
        self._begin(process)
        return True

    def _begin(self, process: bytes) -> None:
        self._process, self._silence = process, 0
        self._shapes.clear()
        for record in (self._order, self._prefixes, self._read):
            record.clear()

    def step_seconds(self) -> float | None:
        """Return the duration of a step; None if the order of collectives does not show it."""
        if len(self._order) <= MINIMUM_REPEATS:
            return None
        stamps = (unix_seconds(self._prefixes[0]), unix_seconds(self._prefixes[-1]))
        stamped = None not in stamps
        first, last = stamps if stamped else (self._read[0], self._read[-1])
        if first is None or last is None or last <= first:
            return None
        settled = len(self._order) >= SETTLED_RECORDS or last - first >= SETTLED_SECONDS
        period = repeat(tuple(self._order)) if settled else None
        if period is None:
            return None
        if not stamped:
            long_enough = last - first >= READ_SPAN_SECONDS
            return (
                seconds((last - first) * period / (len(self._order) - 1)) if long_enough else None
            )
        return self._median(period)

    def _median(self, period: int) -> float | None:
        """Return the median time between collectives that are one period apart."""
        count = min(len(self._prefixes), 32 * period)
        recent = list(self._prefixes)[-count:]
        pick = range(0, len(recent) - period, max(1, period // 4))
        times = [(unix_seconds(recent[i]), unix_seconds(recent[i + period])) for i in pick]
        return seconds(median([b - a for a, b in times if a is not None and b is not None] or [0]))


def repeat(order: Sequence[int]) -> int | None:
    """Return the period of a sequence in elements; None if unknown.

    For each kind of element that occurs once per period, the period is the most common distance, so
    only these distances are examined. Layers repeat within a step, and evaluations between steps:
    if a longer distance fits far better than a short one, both are possible.
    """
    distances = _commonest_distances(order)
    misses = {period: _misses(order, period) for period in distances}
    for period in distances:
        if len(order) < MINIMUM_REPEATS * period:
            return None
        if misses[period] <= 1 - MINIMUM_MATCH and _evenness(order, period) >= MINIMUM_MATCH:
            rivals = [misses[other] for other in distances if other > period]
            return None if any(rival < misses[period] / 4 for rival in rivals) else period
    return None


def _commonest_distances(order: Sequence[int]) -> list[int]:
    distances: dict[int, Counter[int]] = {}
    last: dict[int, int] = {}
    for index, kind in enumerate(order):
        if kind in last:
            distances.setdefault(kind, Counter())[index - last[kind]] += 1
        last[kind] = index
    commonest = (found.most_common(1)[0] for found in distances.values())
    often = {distance for distance, count in commonest if count >= MINIMUM_REPEATS - 1}
    return sorted(often)[:MAX_DISTANCES]


def _misses(order: Sequence[int], period: int) -> float:
    """Return the share of elements that differ from the one a period earlier."""
    compared = len(order) - period
    equal: int = sum(map(eq, order[period:], order))
    return 1 - equal / compared


def _evenness(order: Sequence[int], period: int) -> float:
    """Return the share of sections of one period's length that contain the same elements.

    The elements of a forward and a backward pass may repeat at the same distance, but they are not
    the same elements.
    """
    weights: list[int] = [pow(3, kind + 1, PRIME) for kind in range(max(order) + 1)]
    sums: list[int] = list(accumulate((weights[kind] for kind in order), initial=0))
    stretches = Counter(map(sub, sums[period:], sums))
    return stretches.most_common(1)[0][1] / (len(sums) - period)
