"""Reads the state of the ranks of this node that have stopped ending steps; others are left alone.

Each is queried through its worker server's socket, which takes none of its interpreter's time for
the Flight Recorder, and some hundred microseconds for the stack. A rank that a signal has stopped
does not answer. All queries of a look therefore have a common deadline, ranks of different holders
take turns, and a look waits for no rank that only another look needs.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from rankscope_agent.contract.fair_shares import choose, take_turns
from rankscope_agent.contract.stalls import RankStall
from rankscope_agent.sources.pods.lock_holders import Inode, read_lock_holders
from rankscope_agent.sources.stalls.process import ProcessState, process_state, wanted_share
from rankscope_agent.sources.stalls.rank_queries import LONGEST_SECONDS, RankAnswer, RankQueries
from rankscope_agent.sources.training.format import NOT_MEASURED
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.ring_rows import NS, RingAnswer
from rankscope_agent.sources.training.span_source import RingSpanSource

LEAST_QUIET_SECONDS = 2.0
QUIET_STEPS = 2.0
"""A rank is queried after this many seconds, and this many of its usual step times, without a
step."""

KEPT_SECONDS = 5.0
"""A rank is not queried again within this time, whichever client asks."""

MAX_RANKS = 64
"""Ranks of all jobs that are queried; shared by namespaces, and by the pods of each."""

ASKED_AT_ONCE = 8

LOOK_SECONDS = 6.0
"""Time for all queries of a look: clients wait ten seconds for the first byte, part of which it
takes to read the rings of a busy node. It suffices for 16 ranks that do not answer."""

SLOW_SECONDS = 1.0
"""A rank that takes this long is queried after all others of its holder the next time: a dump of
2,000 entries takes a fifth of it."""

MAX_SLOW = 1024
"""Slow ranks that are remembered."""

CPU_SECONDS = 0.5
"""Shortest time over which CPU time is measured: the kernel counts in hundredths of a second."""

_TOO_LATE = "it was not asked: other ranks took the time for all"
_TOO_MANY = f"it was not asked: more than {MAX_RANKS} ranks of this node stand"
NOT_IN_TIME = RankAnswer(recorder=_TOO_LATE, no_stack=_TOO_LATE)
NO_PLACE = RankAnswer(recorder=_TOO_MANY, no_stack=_TOO_MANY)

RankKey = tuple[str, int, int]
"""Job, rank and the creation time of the ring."""


@dataclass(frozen=True, slots=True)
class _QuietRank:
    """A rank to be queried, and the state of its process before the query."""

    ring: RingAnswer
    process: int | None
    before: ProcessState
    began: float


class StallSource:
    """Provides the state of stalled ranks; may be used by any number of threads at once.

    Args:
        rings: the node's rings.
        procfs: the node's procfs.
        clock: returns the Unix time in seconds.
    """

    def __init__(
        self, rings: RingStepSource, procfs: Path, clock: Callable[[], float] = time.time
    ) -> None:
        self._rings = rings
        self._spans = RingSpanSource(rings)
        self._queries = RankQueries(rings)
        self._procfs = procfs
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[RankKey, RankStall] = {}
        self._asking: dict[RankKey, Future[RankStall]] = {}
        self._slow: dict[RankKey, float] = {}

    def stalls(self, job_id: str | None) -> tuple[RankStall, ...]:
        """Return the state of the stalled ranks of a job, or of all jobs for None.

        Those that could not be queried are included, and say so.
        """
        rings = self._rings.rings_of(job_id)
        now = self._clock()
        # Before any is left out: where locks do not work, the ring of a process that has ended
        # counts as alive for minutes, and is quiet although the rank's next process trains.
        newest = {(one.identity.job_id, one.identity.rank): one for one in rings}
        standing = {_key(one): one for one in newest.values() if _is_quiet(one, now)}
        chosen = {_key(one) for one in choose(standing.values(), self._rings.holder, MAX_RANKS)}
        found = {key: self._unseen(ring) for key, ring in standing.items() if key not in chosen}
        found |= self._states({key: ring for key, ring in standing.items() if key in chosen})
        return tuple(found[key] for key in sorted(found))

    def _states(self, wanted: Mapping[RankKey, RingAnswer]) -> Mapping[RankKey, RankStall]:
        """Return the states of ranks: known ones, those that another look reads, and new ones."""
        with self._lock:
            now = self._clock()
            self._kept = {
                key: stall
                for key, stall in self._kept.items()
                if 0 <= now - stall.taken_unix_seconds < KEPT_SECONDS
            }
            known = {key: self._kept[key] for key in wanted if key in self._kept}
            missing = wanted.keys() - known.keys()
            asked = {key: self._asking[key] for key in missing & self._asking.keys()}
            own = {key: Future[RankStall]() for key in missing - asked.keys()}
            self._asking |= own
        try:
            self._look([wanted[key] for key in sorted(own)], own)
        finally:
            with self._lock:
                for key, future in own.items():
                    del self._asking[key]
                    future.cancel()  # without an effect on those that have their results
        return known | {key: future.result() for key, future in (asked | own).items()}

    def _look(
        self, rings: Sequence[RingAnswer], found: Mapping[RankKey, Future[RankStall]]
    ) -> None:
        """Read the states of ranks, each of which is known to others as soon as it is read."""
        if not rings:
            return
        until = time.monotonic() + LOOK_SECONDS - LONGEST_SECONDS
        holders = read_lock_holders(self._procfs)
        standing = []
        for ring in self._in_turns(rings):
            pid = holders.get(_inode(ring))
            before = process_state(self._procfs, pid)
            standing.append(_QuietRank(ring, pid, before, time.monotonic()))

        def look(one: _QuietRank) -> None:
            key, answer = _key(one.ring), self._queries.ask(one.ring, until)
            stall = self._stall(one, answer)
            if answer is not None:
                self._note(key, stall, answer.seconds)
            found[key].set_result(stall)

        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            for _ in pool.map(look, standing):
                pass

    def _in_turns(self, rings: Sequence[RingAnswer]) -> Sequence[RingAnswer]:
        """Return ranks in the order in which they are queried, as there may not be time for all.

        Holders take turns. Ranks that were slow the last time come after others, those for which
        this is longest ago first.
        """
        with self._lock:
            slow = dict(self._slow)
        order: list[RingAnswer] = []

        def serve(ring: RingAnswer) -> bool:
            order.append(ring)
            return False

        by_patience = sorted(rings, key=lambda ring: slow.get(_key(ring), -math.inf))
        take_turns(by_patience, self._rings.holder, serve)
        return order

    def _note(self, key: RankKey, stall: RankStall, seconds: float) -> None:
        with self._lock:
            self._kept[key] = stall
            self._slow.pop(key, None)
            if seconds >= SLOW_SECONDS:
                self._slow[key] = time.monotonic()
            if len(self._slow) > MAX_SLOW:
                del self._slow[next(iter(self._slow))]

    def _stall(self, standing: _QuietRank, answer: RankAnswer | None) -> RankStall:
        after, share = self._spent(standing)
        # Only what lasts: most processes are in D for brief moments.
        state = after.state if after.state == standing.before.state else ""
        seen = replace(after, state=state)
        return self._described(standing.ring, seen, share, answer or NOT_IN_TIME)

    def _unseen(self, ring: RingAnswer) -> RankStall:
        """Return what is known of a rank that is not looked at."""
        return self._described(ring, ProcessState(), None, NO_PLACE)

    def _described(
        self, ring: RingAnswer, seen: ProcessState, share: float | None, answer: RankAnswer
    ) -> RankStall:
        identity = ring.identity
        now = self._clock()
        return RankStall(
            job_id=identity.job_id,
            rank=identity.rank,
            world_size=identity.world_size,
            taken_unix_seconds=round(now, 6),
            quiet_seconds=round(max(0.0, now - ring.active_unix_seconds), 6),
            stepped=ring.newest > 0,
            state=seen.state,
            cpu_seconds=seen.cpu_seconds,
            groups=answer.groups,
            recorder=answer.recorder,
            stack=answer.stack,
            no_stack=answer.no_stack,
            cpu_share=share,
            span_ended_unix_seconds=self._span_ended(ring),
            asked=answer not in (NOT_IN_TIME, NO_PLACE),
        )

    def _spent(self, standing: _QuietRank) -> tuple[ProcessState, float | None]:
        """Return a rank's current process state, and the share of a core it wanted meanwhile."""
        if standing.before.cpu_seconds is not None:
            time.sleep(max(0.0, standing.began + CPU_SECONDS - time.monotonic()))
        after = process_state(self._procfs, standing.process)
        share = wanted_share(standing.before, after, time.monotonic() - standing.began)
        return after, None if share is None else round(share, 3)

    def _span_ended(self, ring: RingAnswer) -> float | None:
        """Return when a rank last ended a span; a step that follows one may take longer."""
        ends = [
            span.start_unix_ns + span.duration_ns
            for span in self._spans.of_ring(ring)
            if span.duration_ns != NOT_MEASURED
        ]
        return round(max(ends) / NS, 6) if ends else None


def _is_quiet(ring: RingAnswer, now: float) -> bool:
    allowed = max(LEAST_QUIET_SECONDS, QUIET_STEPS * (ring.last_step_seconds or 0.0))
    return ring.identity.alive and now - ring.active_unix_seconds >= allowed


def _key(ring: RingAnswer) -> RankKey:
    return ring.identity.job_id, ring.identity.rank, ring.created_unix_ns


def _inode(ring: RingAnswer) -> Inode:
    device, inode = ring.file.inode
    return os.major(device), os.minor(device), inode
