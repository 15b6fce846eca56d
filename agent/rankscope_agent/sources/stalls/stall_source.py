"""Reads the state of the ranks of this node that have stopped ending steps; others are left alone.

Each is queried through its worker server's socket, which takes none of its interpreter's time for
the Flight Recorder, and some hundred microseconds for the stack. All queries together have a
deadline, because a rank that a signal has stopped answers none.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.contract import thread_stacks
from rankscope_agent.contract.fair_shares import choose
from rankscope_agent.contract.flight_dump import FlightDump, Frame
from rankscope_agent.contract.stalls import MAX_GROUPS, GroupCalls, RankStall, groups_of
from rankscope_agent.sources.flight_recorder.failures import FlightError
from rankscope_agent.sources.flight_recorder.launches import read_answer
from rankscope_agent.sources.flight_recorder.worker_server import (
    HANDLERS,
    PULL_SECONDS,
    QUERY,
    STACKS,
    Question,
    ask,
)
from rankscope_agent.sources.pods.lock_holders import Inode, read_lock_holders
from rankscope_agent.sources.stalls.process import ProcessState, process_state, wanted_share
from rankscope_agent.sources.training.files import RING_SUFFIX
from rankscope_agent.sources.training.format import NOT_MEASURED, RingError
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
STACK_SECONDS = 1.0
"""A rank that holds its interpreter's lock returns no stack, however long one waits."""

CPU_SECONDS = 0.5
"""Shortest time over which CPU time is measured: the kernel counts in hundredths of a second."""

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
    """Provides the state of stalled ranks; may be used by any thread, one at a time.

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
        self._procfs = procfs
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[RankKey, RankStall] = {}

    def stalls(self, job_id: str | None) -> tuple[RankStall, ...]:
        """Return the state of the stalled ranks of a job, or of all jobs for None."""
        with self._lock:
            now = self._clock()
            rings = self._rings.rings_of(job_id)
            # Before any is left out: where locks do not work, the ring of a process that has ended
            # counts as alive for minutes, and is quiet although the rank's next process trains.
            newest = {(one.identity.job_id, one.identity.rank): one for one in rings}
            standing = [one for one in newest.values() if _is_quiet(one, now)]
            chosen = choose(standing, self._rings.holder, MAX_RANKS)
            wanted = {_key(one): one for one in chosen}
            fresh = {
                key: stall
                for key, stall in self._kept.items()
                if 0 <= now - stall.taken_unix_seconds < KEPT_SECONDS
            }
            asked = self._looked_at([one for key, one in wanted.items() if key not in fresh])
            self._kept = {**fresh, **asked}
            return tuple(self._kept[key] for key in sorted(wanted) if key in self._kept)

    def _looked_at(self, rings: Sequence[RingAnswer]) -> Mapping[RankKey, RankStall]:
        if not rings:
            return {}
        holders = read_lock_holders(self._procfs)
        standing = []
        for ring in rings:
            pid = holders.get(_inode(ring))
            before = process_state(self._procfs, pid)
            standing.append(_QuietRank(ring, pid, before, time.monotonic()))
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            found = list(pool.map(self._stall, standing))
        return {_key(one.ring): stall for one, stall in zip(standing, found, strict=True)}

    def _stall(self, standing: _QuietRank) -> RankStall:
        ring = standing.ring
        identity = ring.identity
        groups, recorder, stack, no_stack = self._asked(ring)
        now = self._clock()
        after, share = self._spent(standing)
        return RankStall(
            job_id=identity.job_id,
            rank=identity.rank,
            world_size=identity.world_size,
            taken_unix_seconds=round(now, 6),
            quiet_seconds=round(max(0.0, now - ring.active_unix_seconds), 6),
            stepped=ring.newest > 0,
            # Only what lasts: most processes are in D for brief moments.
            state=after.state if after.state == standing.before.state else "",
            cpu_seconds=after.cpu_seconds,
            groups=groups,
            recorder=recorder,
            stack=stack,
            no_stack=no_stack,
            cpu_share=share,
            span_ended_unix_seconds=self._span_ended(ring),
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

    def _asked(
        self, ring: RingAnswer
    ) -> tuple[tuple[GroupCalls, ...], str, tuple[Frame, ...], str]:
        """Query a rank's worker server; return launches and stack, each with why it is missing."""
        try:
            with self._rings.reopened(ring) as (directory, opened):
                owner = None if ring.directory.pod_uid else os.fstat(opened.descriptor).st_uid
                name = opened.name.removesuffix(RING_SUFFIX) + ".sock"
                question = Question(directory, name, owner)
                dumps, why = _dumps(question)
                stack, no_stack = _stack(question) if dumps is not None else ((), why)
        except (OSError, RingError) as error:
            return (), _shortened(error), (), _shortened(error)
        groups = [group for dump in dumps or () for group in groups_of(dump)]
        return tuple(groups[:MAX_GROUPS]), why, stack, no_stack


def _dumps(question: Question) -> tuple[Sequence[FlightDump] | None, str]:
    """Return the dumps of a process, the one with most entries first; None if it does not answer.

    A job on NCCL often has groups of gloo too, with a recorder of their own, and may hang in them.
    """
    try:
        bodies = list(ask(question, [(one, QUERY) for one in HANDLERS], PULL_SECONDS))
        dumps = [read_answer(body) for body in bodies]
    except FileNotFoundError:
        return None, "it has no worker server"
    except FlightError as error:
        return None, _shortened(error)
    if not dumps:
        return (), "it has no Flight Recorder"
    return sorted(dumps, key=lambda dump: -len(dump.entries)), ""


def _stack(question: Question) -> tuple[tuple[Frame, ...], str]:
    try:
        bodies = list(ask(question, [(STACKS, "")], STACK_SECONDS))
    except (OSError, FlightError) as error:
        return (), _shortened(error)
    if not bodies:
        return (), "its version of torch returns no stacks"
    frames = thread_stacks.main_thread(bodies[0].decode("utf-8", "replace"))
    return frames, "" if frames else "it runs no Python"


def _shortened(error: Exception) -> str:
    return str(error)[:100]


def _is_quiet(ring: RingAnswer, now: float) -> bool:
    allowed = max(LEAST_QUIET_SECONDS, QUIET_STEPS * (ring.last_step_seconds or 0.0))
    return ring.identity.alive and now - ring.active_unix_seconds >= allowed


def _key(ring: RingAnswer) -> RankKey:
    return ring.identity.job_id, ring.identity.rank, ring.created_unix_ns


def _inode(ring: RingAnswer) -> Inode:
    device, inode = ring.file.inode
    return os.major(device), os.minor(device), inode
