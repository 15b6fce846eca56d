"""Reads from the rings, on request, which ranks train on this node and which steps they made.

Nothing of a ring is kept between two queries: each opens the rings with its own descriptors, so
that any thread may query while the collector continues to read.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path

from rankscope_agent.contract.fair_shares import Holder, allot_to_items, choose
from rankscope_agent.contract.model import (
    MAX_STEP_ROWS,
    FreshSteps,
    LeftOut,
    RankIdentity,
    RingBatch,
    RingHead,
    StepRow,
)
from rankscope_agent.contract.shards import Jobs, covers
from rankscope_agent.sources.pods.lock_holders import Inode
from rankscope_agent.sources.training.cursor import (
    newest_seq,
    oldest_seq,
    read_record,
)
from rankscope_agent.sources.training.extension import OpenExtension, open_extension
from rankscope_agent.sources.training.files import (
    LIVENESS_SECONDS,
    MAX_RINGS,
    MAX_RINGS_PER_HOLDER,
    OpenRing,
    RingDirectory,
    RingFile,
    holder_of,
    open_directory,
    open_ring,
    own_directories,
    pod_directories,
)
from rankscope_agent.sources.training.format import (
    RingError,
)
from rankscope_agent.sources.training.identity import rank_identity
from rankscope_agent.sources.training.listing import RingListings
from rankscope_agent.sources.training.naming import NO_PODS, JobNames
from rankscope_agent.sources.training.ring_key import ring_key
from rankscope_agent.sources.training.ring_rows import (
    MOST_START_RECORDS,
    NS,
    RingAnswer,
    RowReader,
    Rows,
    batches_from,
    may_have_rows,
    of_present_jobs,
    of_ranks,
    rows_of_start,
    rows_since,
)

MOST_HOLDERS = 128
"""Live ranks that are returned with their processes: sixteen times those of a node of eight
GPUs."""

FAR_CLOCK_SECONDS = 300.0
"""If a rank's newest step ended this long before or after its ring was written, its clock differs
from its node's: a probe writes within a step or two, which take less."""


class RingStepSource:
    """Ranks and step records of a node; see `rankscope_agent.contract.model.StepSource`.

    Args:
        ring_dir: the node's own directory of rings.
        kubelet: the kubelet's directory, which contains those of pods.
        node: name of this node.
        clock: returns the Unix time in seconds.
        names: the names of pods' jobs.
    """

    def __init__(
        self,
        ring_dir: Path,
        kubelet: Path,
        node: str,
        clock: Callable[[], float] = time.time,
        names: JobNames = NO_PODS,
    ) -> None:
        self._names = names
        self._ring_dir = ring_dir
        self._listings = RingListings()
        self._kubelet = kubelet
        self._node = node
        self._clock = clock

    def ranks(self) -> tuple[RankIdentity, ...]:
        """Return the newest process of each rank of the jobs that run or have just ended.

        Ranks beyond the size of the job according to its newest process left when it shrank.
        """
        now = self._clock()
        rings = sorted(self._scan_rings(), key=lambda ring: ring.created_unix_ns)
        current = {
            ring.identity.job_id
            for ring in rings
            if ring.identity.alive or now - ring.active_unix_seconds < LIVENESS_SECONDS
        }
        newest = {(ring.identity.job_id, ring.identity.rank): ring.identity for ring in rings}
        sizes = {ring.identity.job_id: ring.identity.world_size for ring in rings}
        return tuple(
            newest[job_id, rank]
            for job_id, rank in sorted(newest)
            if job_id in current and not newest[job_id, rank].left(sizes[job_id])
        )

    def holders(self, locked: Container[Inode]) -> Mapping[Inode, tuple[str, int]]:
        """Return job and rank of live rings, by device and inode as in /proc/locks.

        No more are opened than anyone follows: shared like all rings, those of visible processes
        before others.

        Args:
            locked: files that visible processes have locked.
        """
        files = list(self._files())
        seen = [one for one in files if _inode(one[2]) in locked]
        found: dict[Inode, tuple[str, int]] = {}
        now = self._clock()
        for _, place, file in choose(seen or files, lambda one: one[0], MOST_HOLDERS):
            with (
                suppress(OSError, RingError),
                open_directory(place) as descriptor,
                _opened(place, descriptor, file, self._names) as ring,
            ):
                if ring.liveness(now) == "alive":
                    found[_inode(file)] = ring.header.job_id, ring.header.rank
        return found

    def steps(
        self,
        jobs: Jobs,
        since_unix_seconds: float,
        leave_out: Callable[[LeftOut], None] | None = None,
    ) -> Iterator[StepRow]:
        """Yield the records that rings still hold, oldest first per rank; a bad ring has none.

        There are at most `MAX_STEP_ROWS`. They are shared by namespaces, the pods of each, and
        their rings: of a ring that holds more than its share the newest ones are returned.

        Args:
            jobs: the requested jobs.
            since_unix_seconds: steps that started earlier are not requested.
            leave_out: is called for each ring with more requested records than its share.
        """
        asked = [ring for ring in self.rings_of(jobs) if may_have_rows(ring, since_unix_seconds)]
        for ring, most in self._shared(asked, MAX_STEP_ROWS):
            read = partial(rows_since, since=since_unix_seconds, most=most, leave_out=leave_out)
            yield from self._rows(ring, read)

    def starts(self, jobs: Jobs, before_unix_seconds: float) -> Iterator[StepRow]:
        """Yield the first records of each ring: what a job was like at its start.

        They are limited and shared as in `steps`.

        Args:
            jobs: the requested jobs.
            before_unix_seconds: steps that started at this time or later are not returned.
        """
        rings = list(of_present_jobs(self.rings_of(jobs)))
        for ring, most in self._shared(rings, MOST_START_RECORDS):
            yield from self._rows(
                ring, partial(rows_of_start, before=before_unix_seconds, most=most)
            )

    def fresh(
        self, jobs: Jobs, since_unix_seconds: float, cursors: Mapping[str, int]
    ) -> FreshSteps:
        """Return the records that a reader does not have yet.

        They are limited and shared as in `steps`.

        Args:
            jobs: the requested jobs.
            since_unix_seconds: steps that started earlier are left out of rings without a cursor.
            cursors: number of the record that is wanted next, by the name of its ring.
        """
        rings = self.rings_of(jobs)
        heads = tuple(_head(ring, cursors) for ring in rings)
        wanted = [
            (self.holder(ring), _wanted(ring, head, since_unix_seconds))
            for ring, head in zip(rings, heads, strict=True)
        ]
        shares = allot_to_items(wanted, MAX_STEP_ROWS)
        left_out: list[LeftOut] = []
        found = self._batches(rings, heads, shares, since_unix_seconds, left_out.append)
        return FreshSteps(heads, found, left_out)

    def _batches(
        self,
        rings: Sequence[RingAnswer],
        heads: Sequence[RingHead],
        shares: Sequence[int],
        since: float,
        leave_out: Callable[[LeftOut], None],
    ) -> Iterator[RingBatch]:
        for number, (ring, head, most) in enumerate(zip(rings, heads, shares, strict=True)):
            oldest = since if head.whole else -math.inf
            if _is_past(ring, head, since):
                yield RingBatch(number, (), ring.newest + 1)
            elif most:
                read = partial(
                    batches_from,
                    first=head.next_number,
                    since=oldest,
                    most=most,
                    leave_out=leave_out,
                )
                for rows, behind in self._rows(ring, read):
                    yield RingBatch(number, rows, behind)

    def _shared(
        self, rings: Sequence[RingAnswer], most_of_a_ring: int
    ) -> Iterator[tuple[RingAnswer, int]]:
        """Yield rings, and how many records of each may be in one answer."""
        owned = [(self.holder(ring), min(ring.held, most_of_a_ring)) for ring in rings]
        return zip(rings, allot_to_items(owned, MAX_STEP_ROWS), strict=True)

    def rings_of(self, jobs: Jobs) -> Sequence[RingAnswer]:
        """Return the rings of some jobs; of each rank the oldest comes first."""
        rings = [ring for ring in self._scan_rings() if covers(jobs, ring.identity.job_id)]
        return sorted(rings, key=lambda r: (r.identity.job_id, r.identity.rank, r.created_unix_ns))

    def _scan_rings(self) -> Sequence[RingAnswer]:
        """Read every ring once; unreadable ones are left to the collector to report."""
        # Twice as many as are read, because files of others, and other files, are among them.
        chosen = choose(self._files(), lambda file: file[0], 2 * MAX_RINGS)
        answers = chain.from_iterable(
            self._answers(place, [file for _, _, file in several])
            for place, several in groupby(chosen, lambda file: file[1])
        )
        return of_ranks([answer for _, answer in choose(answers, lambda one: one[0], MAX_RINGS)])

    def _files(self) -> Iterator[tuple[Holder, RingDirectory, RingFile]]:
        """List the files that may be rings, each with its holder."""
        pods: Sequence[RingDirectory] = ()
        with suppress(OSError):
            pods = () if self._names.pending else pod_directories(self._kubelet)
        places = (*own_directories(self._ring_dir), *pods)
        for place, _, newest in self._listings.newest(places, self._clock()):
            yield from self._owned(place, newest)

    def _owned(
        self, place: RingDirectory, files: Sequence[RingFile]
    ) -> Iterator[tuple[Holder, RingDirectory, RingFile]]:
        return ((self._holder(place, file.user), place, file) for file in files)

    def holder(self, ring: RingAnswer) -> Holder:
        """Return in whose share a ring counts."""
        return self._holder(ring.directory, ring.file.user)

    def _holder(self, directory: RingDirectory, user: int) -> Holder:
        namespace = self._names.namespace_of_pod(directory.pod_uid) if directory.pod_uid else ""
        return holder_of(directory, namespace, user)

    def _answers(
        self, directory: RingDirectory, files: Sequence[RingFile]
    ) -> Iterator[tuple[Holder, RingAnswer]]:
        found: Counter[Holder] = Counter()
        with suppress(OSError, RingError), open_directory(directory) as descriptor:
            for file in files:
                with (
                    suppress(OSError, RingError),
                    _opened(directory, descriptor, file, self._names) as ring,
                ):
                    found[ring.holder] += 1
                    if found[ring.holder] <= MAX_RINGS_PER_HOLDER:
                        yield ring.holder, self._answer(ring, file)

    def _answer(self, ring: OpenRing, file: RingFile) -> RingAnswer:
        now = self._clock()
        written = os.fstat(ring.descriptor).st_mtime
        capacity = ring.header.capacity
        newest = newest_seq(ring.descriptor, capacity)
        last = read_record(ring.descriptor, newest, capacity) if newest else None
        active_ns = last.start_unix_ns + last.step_ns if last else ring.header.created_unix_ns
        identity = rank_identity(ring, self._node, last, alive=ring.liveness(now) == "alive")
        ahead = active_ns / NS - written if last else 0.0
        if identity.alive and abs(ahead) > FAR_CLOCK_SECONDS:
            identity = replace(identity, clock_ahead_seconds=round(ahead, 1))
        return RingAnswer(
            directory=ring.directory,
            file=file,
            created_unix_ns=ring.header.created_unix_ns,
            newest=newest,
            active_unix_seconds=min(now, active_ns / NS),
            identity=identity,
            held=newest - oldest_seq(newest, capacity) + 1,
            last_step_seconds=last.step_ns / NS if last else None,
            last_start_unix_seconds=last.start_unix_ns / NS if last else None,
        )

    @contextmanager
    def reopened(self, answer: RingAnswer) -> Iterator[tuple[int, OpenRing]]:
        """Open again a ring that was read before, and yield its directory's descriptor as well.

        Raises:
            OSError: it cannot be opened.
            RingError: it has been replaced.
        """
        with (
            open_directory(answer.directory) as descriptor,
            _opened(answer.directory, descriptor, answer.file, self._names) as ring,
        ):
            if ring.inode != answer.file.inode:
                raise RingError("unreadable", "its file has been replaced")
            yield descriptor, ring

    def _rows(self, answer: RingAnswer, read: RowReader[Rows]) -> Iterator[Rows]:
        with (
            suppress(OSError, RingError),
            open_directory(answer.directory) as descriptor,
            _opened(answer.directory, descriptor, answer.file, self._names) as ring,
        ):
            if ring.inode == answer.file.inode and answer.newest:
                with _extension_of(descriptor, ring) as extension:
                    now = round(self._clock() * NS) if answer.identity.alive else None
                    joined = partial(extension.join, now_unix_ns=now) if extension else list
                    yield from read(ring, joined, answer)


def _head(ring: RingAnswer, cursors: Mapping[str, int]) -> RingHead:
    """Return where to begin: a number beyond the end of a ring is not its own."""
    name = _name(ring)
    number = cursors.get(name, 0)
    if 1 <= number <= ring.newest + 1:
        return RingHead(name, ring.identity, number, whole=False)
    return RingHead(name, ring.identity, max(1, ring.newest - ring.held + 1), whole=True)


def _wanted(ring: RingAnswer, head: RingHead, since: float) -> int:
    """Return how many records of a ring a reader lacks; since a time if it does not follow it."""
    if _is_past(ring, head, since):
        return 0
    return min(ring.held, max(0, ring.newest - head.next_number + 1))


def _is_past(ring: RingAnswer, head: RingHead, since: float) -> bool:
    """Return True if all steps of a ring that a reader does not follow yet began before a time."""
    return head.whole and not may_have_rows(ring, since)


def _name(ring: RingAnswer) -> str:
    return ring_key(ring.file.inode, ring.created_unix_ns, ring.file.name)


def _inode(file: RingFile) -> Inode:
    device, inode = file.inode
    return os.major(device), os.minor(device), inode


@contextmanager
def _opened(
    directory: RingDirectory, directory_descriptor: int, file: RingFile, names: JobNames
) -> Iterator[OpenRing]:
    """Open a ring and close it again.

    Raises:
        OSError: it is gone, or its lock cannot be asked for.
        RingError: it is not a ring of this directory.
    """
    ring = open_ring(directory, directory_descriptor, file.name, names)
    try:
        yield ring
    finally:
        os.close(ring.descriptor)


@contextmanager
def _extension_of(directory_descriptor: int, ring: OpenRing) -> Iterator[OpenExtension | None]:
    """Open and close a ring's extension; return None if there is none that can be read."""
    extension = None
    with suppress(RingError):  # the collector reports it
        extension = open_extension(directory_descriptor, ring)
    try:
        yield extension
    finally:
        if extension:
            extension.close()
