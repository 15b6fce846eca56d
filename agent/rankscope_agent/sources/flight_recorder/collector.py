"""When the ranks on this node launched which collectives, from PyTorch's Flight Recorder.

In jobs of several processes, probes make torch's worker server listen next to their rings. If a
rank's records do not separate waiting from computing, this collector queries the server now and
then, in windows that together cost 1 % of a core, and keeps the answers for `/api/v1/collectives`.
Which rank waited for which can only be determined from all nodes; analyzers do that.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from rankscope_agent.contract.fair_shares import Holder, choose
from rankscope_agent.contract.metrics import flight_recorder as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.flight_recorder.budget import ASSUMED_SECONDS, Budget
from rankscope_agent.sources.flight_recorder.failures import REASONS, FlightError
from rankscope_agent.sources.flight_recorder.launches import Launches, read_launches
from rankscope_agent.sources.flight_recorder.windows import NS, FlightWindows
from rankscope_agent.sources.flight_recorder.worker_server import PULL_SECONDS, fetch
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.training.cursor import newest_seq, read_record
from rankscope_agent.sources.training.files import (
    MAX_RINGS_PER_HOLDER,
    RING_SUFFIX,
    OpenRing,
    RingDirectory,
    RingFile,
    open_directory,
    open_ring,
    own_directories,
    pod_directories,
)
from rankscope_agent.sources.training.format import TIMING_MASK, RingError
from rankscope_agent.sources.training.listing import RingListings, newest_of_each
from rankscope_agent.sources.training.naming import JobNames

log = logging.getLogger(__name__)

FIND_SECONDS = 5.0
"""Time between scans for sockets, as between scans for the rings of pods."""

RUN_SECONDS = 6.0
"""Maximum duration of one run: it ends before a collector's deadline of ten seconds, even if a rank
hangs."""

BEGIN_SECONDS = RUN_SECONDS - PULL_SECONDS
"""No query of a run begins later than this, so that each rank has its whole time to answer."""

FIRST_PAUSE_SECONDS = 30.0
LAST_PAUSE_SECONDS = 3600.0
"""Pause after a failed query of a socket, doubled each time."""

MAX_SOCKETS = 256
"""Maximum number of sockets queried: 32 nodes' worth of eight ranks, for machines that run small
tests."""


def create(config: Config, pods: PodDirectory, windows: FlightWindows) -> FlightRecorderCollector:
    """Create the collector; its answers are stored in `windows`."""
    return FlightRecorderCollector(config.ring_dir, config.kubelet, windows, pods, time.time)


@dataclass(frozen=True, slots=True)
class RankSocket:
    """A worker server's socket, and the rank according to its ring.

    Args:
        owner: the user who must own it; None in a pod's volume, where users may be mapped.
        began_ns: Unix time at which the ring was created.
        holder: whose share it counts in.
    """

    directory: RingDirectory
    name: str
    owner: int | None
    job_id: str
    rank: int
    began_ns: int
    holder: Holder


@dataclass(slots=True)
class _SocketState:
    """The record of a socket: its last turn, its cost, its pause after failures and its end."""

    turn: int = -1
    cost_seconds: float = ASSUMED_SECONDS
    pause_seconds: float | None = None
    left_until: float = -math.inf


class FlightRecorderCollector:
    """Queries worker servers within a budget.

    Args:
        ring_dir: the node's own ring directory.
        kubelet: the kubelet's directory, which contains those of pods.
        windows: where windows are kept.
        names: the names of the jobs of pods.
        clock: returns the Unix time in seconds.
    """

    def __init__(
        self,
        ring_dir: Path,
        kubelet: Path,
        windows: FlightWindows,
        names: JobNames,
        clock: Callable[[], float],
    ) -> None:
        self._ring_dir = ring_dir
        self._listings = RingListings()
        self._kubelet = kubelet
        self._windows = windows
        self._names = names
        self._clock = clock
        self._budget = Budget(clock())
        self._sockets: Sequence[RankSocket] = ()
        self._found_at = float("-inf")
        self._states: dict[RankSocket, _SocketState] = {}
        self._turns = count()
        self._last_turns: dict[str | Holder, int] = {}
        self._failures: Counter[str] = Counter()
        self._pulls = self._skipped = 0
        self._covered_ns: Counter[tuple[str, int]] = Counter()

    def collect(self) -> Iterator[Sample]:
        """Yield the results of the queries.

        Raises:
            NoData: no live rank has a worker server, and none had.
        """
        now = self._clock()
        if not self._found_at <= now < self._found_at + FIND_SECONDS:
            self._found_at = now
            self._find(now)
        ready = [socket for socket in self._sockets if self._state(socket).left_until <= now]
        expected = sum(self._state(socket).cost_seconds for socket in ready)
        if ready and self._budget.due(now, min(expected, BEGIN_SECONDS)):
            self._ask(ready, now)
        if not (self._sockets or self._pulls or self._failures):
            raise NoData(
                "no live rank without sync time has a worker server beside its ring; see"
                " docs/timing_sources.md"
            )
        yield from self._samples()

    def _state(self, socket: RankSocket) -> _SocketState:
        return self._states.setdefault(socket, _SocketState())

    def _find(self, now: float) -> None:
        """Look for the sockets of live ranks, and forget those that are gone."""
        directories = list(own_directories(self._ring_dir))
        with suppress(OSError):
            directories += () if self._names.pending else pod_directories(self._kubelet)
        found = (
            socket
            for place, descriptor, files in self._listings.newest(directories, now)
            for socket in self._sockets_of(place, descriptor, files, now)
        )
        self._sockets = choose(found, lambda socket: socket.holder, MAX_SOCKETS)
        kept = frozenset(self._sockets)
        self._states = {socket: state for socket, state in self._states.items() if socket in kept}
        live = {(socket.job_id, socket.rank) for socket in self._sockets}
        for gone in set(self._covered_ns) - live:
            del self._covered_ns[gone]

    def _sockets_of(
        self, place: RingDirectory, directory: int, files: Sequence[RingFile], now: float
    ) -> Iterator[RankSocket]:
        for file in newest_of_each(files, MAX_RINGS_PER_HOLDER):
            name = file.name.removesuffix(RING_SUFFIX) + ".sock"
            with suppress(OSError, RingError):
                os.stat(name, dir_fd=directory, follow_symlinks=False)
                yield from self._live_rank(place, directory, file.name, now)

    def _live_rank(
        self, ring_directory: RingDirectory, directory: int, ring_name: str, now: float
    ) -> Iterator[RankSocket]:
        ring = open_ring(ring_directory, directory, ring_name, self._names)
        try:
            if ring.liveness(now) != "alive" or not _lacks_sync(ring):
                return
            yield RankSocket(
                directory=ring_directory,
                name=ring_name.removesuffix(RING_SUFFIX) + ".sock",
                owner=None if ring_directory.pod_uid else os.fstat(ring.descriptor).st_uid,
                job_id=ring.header.job_id,
                rank=ring.header.rank,
                began_ns=ring.header.created_unix_ns,
                holder=ring.holder,
            )
        finally:
            os.close(ring.descriptor)

    def _ask(self, ready: Sequence[RankSocket], now: float) -> None:
        """Query one rank after another, for as long as a run may last.

        The next one is of those on whom least time was spent: groups share first, then the holders
        of each. A run begins with those who were queried longest ago.
        """
        began = time.monotonic()
        spent: dict[str | Holder, float] = defaultdict(float)
        waiting = sorted(ready, key=self._last_turn)
        while waiting and time.monotonic() - began <= BEGIN_SECONDS:
            socket = min(waiting, key=lambda one: (spent[one.holder[0]], spent[one.holder]))
            waiting.remove(socket)
            self._ask_one(socket, now)
            for sharer in (socket.holder[0], socket.holder):
                spent[sharer] += self._state(socket).cost_seconds
                self._note_turn(sharer, self._state(socket).turn)

    def _last_turn(self, socket: RankSocket) -> tuple[int, int, int]:
        """Return when a rank's group, its holder, and it were last queried; -1 for never."""
        group, holder = (
            self._last_turns.get(sharer, -1) for sharer in (socket.holder[0], socket.holder)
        )
        return group, holder, self._state(socket).turn

    def _note_turn(self, sharer: str | Holder, turn: int) -> None:
        """Remember this also of those whose sockets are gone: whoever makes new ones is not new."""
        self._last_turns.pop(sharer, None)
        self._last_turns[sharer] = turn
        if len(self._last_turns) > 2 * MAX_SOCKETS:
            del self._last_turns[next(iter(self._last_turns))]

    def _ask_one(self, socket: RankSocket, now: float) -> None:
        began = time.monotonic()
        state = self._state(socket)
        state.turn = next(self._turns)
        try:
            self._pull(socket)
            state.pause_seconds = None
        except FileNotFoundError:
            state.left_until = now + FIND_SECONDS
        except FlightError as error:
            self._note_failure(socket, state, error, now)
        # The rank spends the wait for a dump on producing it, or the wait is idle: an upper bound.
        state.cost_seconds = time.monotonic() - began
        self._budget.spend(state.cost_seconds)

    def _pull(self, socket: RankSocket) -> None:
        """Fetch and store what one rank has recorded.

        Raises:
            FileNotFoundError: the socket is gone.
            FlightError: the query failed.
        """
        dumps: list[bytes] = []
        asked_ns = round(self._clock() * NS)
        try:
            with open_directory(socket.directory) as directory:
                fetch(directory, socket.name, socket.owner, dumps.append, PULL_SECONDS)
        except RingError as error:
            raise FlightError("symlink", str(error)) from error
        dump = _fullest(dumps)
        self._pulls += 1
        self._skipped += dump.skipped
        window = self._windows.add(
            socket.holder, socket.job_id, socket.rank, socket.began_ns, asked_ns, dump
        )
        if window is not None:
            self._covered_ns[socket.job_id, socket.rank] += window.end_ns - window.begin_ns

    def _note_failure(
        self, socket: RankSocket, state: _SocketState, error: FlightError, now: float
    ) -> None:
        self._failures[error.reason] += 1
        before = state.pause_seconds
        pause = FIRST_PAUSE_SECONDS if before is None else min(2 * before, LAST_PAUSE_SECONDS)
        state.pause_seconds, state.left_until = pause, now + pause
        if before is None:
            path = str(socket.directory.path / socket.name)
            log.warning("no Flight Recorder from %r (%s): %s", path, error.reason, error)

    def _samples(self) -> Iterator[Sample]:
        yield metrics.SOCKETS.sample(len(self._sockets))
        yield metrics.PULLS.sample(self._pulls)
        yield metrics.SKIPPED.sample(self._skipped)
        yield metrics.SPENT.sample(self._budget.spent)
        for reason in REASONS:
            yield metrics.FAILURES.sample(self._failures[reason], reason=reason)
        for (job_id, rank), covered_ns in self._covered_ns.items():
            yield metrics.COVERED.sample(covered_ns / NS, job_id=job_id, rank=str(rank))


def _lacks_sync(ring: OpenRing) -> bool:
    """Return True unless a rank's newest step separates waiting from computing."""
    capacity = ring.header.capacity
    record = read_record(ring.descriptor, newest_seq(ring.descriptor, capacity), capacity)
    return record is None or not record.flags & TIMING_MASK


def _fullest(bodies: Sequence[bytes]) -> Launches:
    """Return the dump that has entries: a process may have the recorders of two backends.

    Raises:
        FlightError: there is none. A recorder that is off, or belongs to another backend than the
            job's, is empty too, which must not look like a rank that launched nothing.
    """
    if not bodies:
        raise FlightError("no_recorder", "serves no Flight Recorder, like older torch on gloo")
    dump = max((read_launches(body) for body in bodies), key=lambda dump: len(dump.launches))
    if not dump.launches:
        raise FlightError(
            "empty", "has recorded no collective; enable it with TORCH_NCCL_TRACE_BUFFER_SIZE=2000"
        )
    return dump
