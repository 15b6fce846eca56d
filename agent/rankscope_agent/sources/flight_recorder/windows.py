"""Stores sampled windows of each rank's collectives in bounded memory, which holders share.

Within the time of a window, every launch of its rank is recorded. Between windows nothing is known:
what was launched there was overwritten before anyone read it.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from rankscope_agent.contract.fair_shares import Holder
from rankscope_agent.sources.flight_recorder.launches import Launch, Launches

MAX_LAUNCHES = 512_000
"""Launches kept of all ranks together, 15 MB: those of eight ranks in 32 windows of 2,000. If there
are more, the oldest window of the group with most is dropped, of its holder with most."""

KEPT_SECONDS = 3600.0
"""How long windows are kept: as far back as a diagnosis looks by default."""

NS = 10**9


@dataclass(frozen=True, slots=True)
class Window:
    """All collectives that one process launched within a time range, in columns.

    Args:
        begin_ns: Unix time from which on none is missing.
        end_ns: Unix time until which none is missing.
        groups: names of process groups, which `group` indexes.
        operations: names of operations, which `operation` indexes.
        duration_us: on the device; -1 if not measured.
    """

    job_id: str
    rank: int
    backend: str
    begin_ns: int
    end_ns: int
    groups: tuple[str, ...]
    operations: tuple[str, ...]
    group: Sequence[int]
    operation: Sequence[int]
    seq: Sequence[int]
    time_ns: Sequence[int]
    duration_us: Sequence[int]


class FlightWindows:
    """The windows of a node; any thread may read while another adds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[Holder, deque[Window]] = {}
        self._launches: Counter[Holder] = Counter()
        self._reached: dict[tuple[str, int], tuple[int, int]] = {}

    def add(
        self,
        holder: Holder,
        job_id: str,
        rank: int,
        process_began_ns: int,
        asked_ns: int,
        dump: Launches,
    ) -> Window | None:
        """Store what a dump adds to the existing windows; return None if it adds nothing.

        Args:
            holder: in whose share the window counts.
            job_id: the rank's job.
            rank: its number in the job.
            process_began_ns: Unix time since which the rank's process has written its ring.
            asked_ns: Unix time at which the dump was requested.
            dump: what the process had recorded by then.
        """
        began_ns, reached_ns = self._reached.get((job_id, rank), (process_began_ns, 0))
        if began_ns != process_began_ns:  # the rank is another process now
            reached_ns = 0
        begin_ns = process_began_ns if dump.whole else _oldest(dump, asked_ns)
        begin_ns = max(begin_ns, reached_ns)
        if begin_ns >= asked_ns:
            return None
        new = [launch for launch in dump.launches if begin_ns <= launch.time_ns < asked_ns]
        window = _window(job_id, rank, dump.backend, (begin_ns, asked_ns), new)
        with self._lock:
            self._reached[job_id, rank] = (process_began_ns, asked_ns)
            self._windows.setdefault(holder, deque()).append(window)
            self._launches[holder] += len(new)
            self._forget(asked_ns)
        return window

    def since(self, job_id: str | None, since_unix_seconds: float) -> tuple[Window, ...]:
        """Return the windows that end after a given time, of one job or all, oldest first."""
        with self._lock:
            windows = tuple(chain.from_iterable(self._windows.values()))
        return tuple(
            window
            for window in sorted(windows, key=lambda window: window.end_ns)
            if job_id in (None, window.job_id) and window.end_ns > since_unix_seconds * NS
        )

    def _forget(self, now_ns: int) -> None:
        oldest_ns = now_ns - round(KEPT_SECONDS * NS)
        for holder, windows in tuple(self._windows.items()):
            while windows and windows[0].end_ns < oldest_ns:
                self._drop(holder)
        while self._launches.total() > MAX_LAUNCHES:
            self._drop(self._largest())
        count = sum(map(len, self._windows.values()))
        if len(self._reached) > count + 1:
            left = chain.from_iterable(self._windows.values())
            kept = {(window.job_id, window.rank) for window in left}
            self._reached = {key: value for key, value in self._reached.items() if key in kept}

    def _drop(self, holder: Holder) -> None:
        """Drop a holder's oldest window."""
        windows = self._windows[holder]
        self._launches[holder] -= len(windows.popleft().seq)
        if not windows:
            del self._windows[holder], self._launches[holder]

    def _largest(self) -> Holder:
        groups: Counter[str] = Counter()
        for holder, launches in self._launches.items():
            groups[holder[0]] += launches
        largest = max(groups, key=lambda group: groups[group])
        of_group = (holder for holder in self._launches if holder[0] == largest)
        return max(of_group, key=lambda holder: self._launches[holder])


def _oldest(dump: Launches, asked_ns: int) -> int:
    """Return the time of the oldest entry, after which nothing is missing.

    Entries are made by several threads, so they are in order of time except for microseconds: the
    exact time of the oldest is therefore excluded.
    """
    return dump.launches[0].time_ns + 1 if dump.launches else asked_ns


def _window(
    job_id: str, rank: int, backend: str, span: tuple[int, int], launches: Sequence[Launch]
) -> Window:
    groups = {name: index for index, name in enumerate(sorted({x.group for x in launches}))}
    operations = {name: index for index, name in enumerate(sorted({x.operation for x in launches}))}
    return Window(
        job_id=job_id,
        rank=rank,
        backend=backend,
        begin_ns=span[0],
        end_ns=span[1],
        groups=tuple(groups),
        operations=tuple(operations),
        group=array("H", [groups[x.group] for x in launches]),
        operation=array("H", [operations[x.operation] for x in launches]),
        seq=array("q", [x.seq for x in launches]),
        time_ns=array("q", [x.time_ns for x in launches]),
        duration_us=array("q", [x.duration_us for x in launches]),
    )
