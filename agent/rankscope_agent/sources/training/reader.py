"""Reads from the rings, on request, who trains on this node and which steps they made.

Nothing of a ring is kept between two questions: each opens the rings with descriptors of its own,
so that any thread may ask while the collector reads on.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from pathlib import Path

from rankscope_agent.contract.model import RankIdentity, StepRow
from rankscope_agent.sources.fair_shares import Holder, choose
from rankscope_agent.sources.training.cursor import (
    MAX_CHUNK,
    Cursor,
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
    NOT_MEASURED,
    TIMING_MASK,
    UNKNOWN_SAMPLES,
    RingError,
    StepRecord,
)
from rankscope_agent.sources.training.identity import rank_identity
from rankscope_agent.sources.training.listing import RingListings
from rankscope_agent.sources.training.naming import NO_PODS, JobNames

NS = 10**9

CLOCK_STEP_SECONDS = 120.0
"""How far a node's clock may be set back during a job without records being missed; NTP steps a
clock at its start, by seconds, and slews it afterwards."""


@dataclass(frozen=True, slots=True)
class RingAnswer:
    """What a look at one ring gave; `newest` is the number of its newest record, 0 without one.

    `active_unix_seconds` is when the step of that record ended, or when the ring was made.
    """

    directory: RingDirectory
    file: RingFile
    created_unix_ns: int
    newest: int
    active_unix_seconds: float
    identity: RankIdentity
    last_step_seconds: float | None = None


Join = Callable[[Sequence[StepRecord]], Sequence[StepRecord]]
"""Completes records by what the ring's extension has of them; a record it lacks ends them."""

RowReader = Callable[[OpenRing, Join, RingAnswer], Iterator[StepRow]]
"""Yields rows of an open ring."""

NEW_JOB_SECONDS = 1800.0
"""A rank that begins so long after its last step is taken for one of another job of that name."""

START_RECORDS, START_SECONDS = 64, 20.0
"""Of each ring's start at least so many steps, and so long a time: twice what a job's pace is
learned by after its slow first steps (12 steps, then 30 of them and ten seconds)."""

MOST_START_RECORDS = 4096
"""Of steps of 5 milliseconds these are 20 seconds."""


class RingStepSource:
    """Ranks and step records of a node; see `rankscope_agent.contract.model.StepSource`.

    Args:
        ring_dir: the node's own directory of rings.
        kubelet: the kubelet's directory, under which pods have theirs.
        node: name of this node.
        clock: gives the Unix time in seconds.
        names: what pods' jobs are called.
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
        """Return the newest process of each rank of the jobs that run or ended just now.

        Ranks beyond the size that a job has by its newest process left when it shrank.
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

    def holders(self) -> Mapping[tuple[int, int, int], tuple[str, int]]:
        """Return job and rank of each live ring, by device and inode as /proc/locks has them."""
        found = sorted(self._scan_rings(), key=lambda ring: ring.created_unix_ns)
        return {
            (os.major(device), os.minor(device), inode): (ring.identity.job_id, ring.identity.rank)
            for ring in found
            for device, inode in (ring.file.inode,)
            if ring.identity.alive
        }

    def steps(self, job_id: str | None, since_unix_seconds: float) -> Iterator[StepRow]:
        """Yield the records that rings still hold, oldest first per rank; a bad ring has none.

        Args:
            job_id: the job, None for all.
            since_unix_seconds: steps that started earlier are left out.
        """
        for ring in self.rings_of(job_id):
            yield from self._rows(ring, partial(_ring_rows, since=since_unix_seconds))

    def starts(self, job_id: str | None, before_unix_seconds: float) -> Iterator[StepRow]:
        """Yield the first records of each ring: what a job was like at its start.

        Args:
            job_id: the job, None for all.
            before_unix_seconds: of steps that started at this moment or later there is none.
        """
        for ring in _of_present_jobs(self.rings_of(job_id)):
            yield from self._rows(ring, partial(_ring_start, before=before_unix_seconds))

    def rings_of(self, job_id: str | None) -> Sequence[RingAnswer]:
        """Look at the rings of a job, None for all; of each rank the oldest comes first."""
        rings = [ring for ring in self._scan_rings() if job_id in (None, ring.identity.job_id)]
        return sorted(rings, key=lambda r: (r.identity.job_id, r.identity.rank, r.created_unix_ns))

    def _scan_rings(self) -> Sequence[RingAnswer]:
        """Look at every ring once; those that cannot be read are left to the collector to name."""
        pods: Sequence[RingDirectory] = ()
        with suppress(OSError):
            pods = () if self._names.pending else pod_directories(self._kubelet)
        places = (*own_directories(self._ring_dir), *pods)
        files = chain.from_iterable(
            self._owned(place, newest)
            for place, _, newest in self._listings.newest(places, self._clock())
        )
        # Twice as many as are read: what others left, and what is none, is among them.
        chosen = choose(files, lambda file: file[0], 2 * MAX_RINGS)
        answers = chain.from_iterable(
            self._answers(place, [file for _, _, file in several])
            for place, several in groupby(chosen, lambda file: file[1])
        )
        return [answer for _, answer in choose(answers, lambda one: one[0], MAX_RINGS)]

    def _owned(
        self, place: RingDirectory, files: Sequence[RingFile]
    ) -> Iterator[tuple[Holder, RingDirectory, RingFile]]:
        return ((self._holder(place, file.user), place, file) for file in files)

    def holder(self, ring: RingAnswer) -> Holder:
        """Return who takes a place with a ring."""
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
        capacity = ring.header.capacity
        newest = newest_seq(ring.descriptor, capacity)
        last = read_record(ring.descriptor, newest, capacity) if newest else None
        active_ns = last.start_unix_ns + last.step_ns if last else ring.header.created_unix_ns
        return RingAnswer(
            directory=ring.directory,
            file=file,
            created_unix_ns=ring.header.created_unix_ns,
            newest=newest,
            active_unix_seconds=min(now, active_ns / NS),
            identity=rank_identity(ring, self._node, last, alive=ring.liveness(now) == "alive"),
            last_step_seconds=last.step_ns / NS if last else None,
        )

    @contextmanager
    def reopened(self, answer: RingAnswer) -> Iterator[tuple[int, OpenRing]]:
        """Open a ring that was looked at once more, and give its directory's descriptor as well.

        Raises:
            OSError: it cannot be opened.
            RingError: it is another one by now.
        """
        with (
            open_directory(answer.directory) as descriptor,
            _opened(answer.directory, descriptor, answer.file, self._names) as ring,
        ):
            if ring.inode != answer.file.inode:
                raise RingError("unreadable", "another file has taken its name")
            yield descriptor, ring

    def _rows(self, answer: RingAnswer, read: RowReader) -> Iterator[StepRow]:
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


def _of_present_jobs(rings: Sequence[RingAnswer]) -> Iterator[RingAnswer]:
    """Yield rings without those of an earlier job of the same name, which was over long before.

    Args:
        rings: by job and rank, of each rank the oldest first.
    """
    for _, several in groupby(rings, lambda r: (r.identity.job_id, r.identity.rank)):
        chain_of_runs: list[RingAnswer] = []
        for ring in several:
            before = chain_of_runs[-1].active_unix_seconds if chain_of_runs else math.inf
            if ring.created_unix_ns / NS - before > NEW_JOB_SECONDS:
                chain_of_runs.clear()
            chain_of_runs.append(ring)
        yield from chain_of_runs


@contextmanager
def _opened(
    directory: RingDirectory, directory_descriptor: int, file: RingFile, names: JobNames
) -> Iterator[OpenRing]:
    """Open a ring and close it again.

    Raises:
        FileNotFoundError: it is gone.
        RingError: it is no ring of this directory.
    """
    ring = open_ring(directory, directory_descriptor, file.name, names)
    try:
        yield ring
    finally:
        os.close(ring.descriptor)


@contextmanager
def _extension_of(directory_descriptor: int, ring: OpenRing) -> Iterator[OpenExtension | None]:
    """Open a ring's extension and close it again; None if there is none that can be read."""
    extension = None
    with suppress(RingError):  # the collector names it
        extension = open_extension(directory_descriptor, ring)
    try:
        yield extension
    finally:
        if extension:
            extension.close()


def _ring_rows(ring: OpenRing, join: Join, answer: RingAnswer, since: float) -> Iterator[StepRow]:
    capacity = ring.header.capacity
    first = _first_seq(ring.descriptor, answer.newest, capacity, since)
    # What is written while rows are sent waits for the next question.
    limit = answer.newest - first + 1
    for records in Cursor(capacity, first).read(ring.descriptor, limit):
        joined = join(records)
        for record in joined:
            if round(record.start_unix_ns / NS, 6) >= since:
                yield _row(answer.identity, record)
        if len(joined) < len(records):
            return


def _ring_start(ring: OpenRing, join: Join, answer: RingAnswer, before: float) -> Iterator[StepRow]:
    capacity = ring.header.capacity
    first = oldest_seq(answer.newest, capacity)
    limit = min(answer.newest - first + 1, MOST_START_RECORDS)
    count, began = 0, 0.0
    for records in Cursor(capacity, first).read(ring.descriptor, limit):
        joined = join(records)
        for record in joined:
            start = round(record.start_unix_ns / NS, 6)
            began = began if count else start
            if start >= before or (count >= START_RECORDS and start - began >= START_SECONDS):
                return
            count += 1
            yield _row(answer.identity, record)
        if len(joined) < len(records):
            return


def _first_seq(descriptor: int, newest: int, capacity: int, since: float) -> int:
    """Go back from the newest record, in large strides, to one from well before a moment."""
    oldest = oldest_seq(newest, capacity)
    for seq in range(newest, oldest, -MAX_CHUNK):
        record = read_record(descriptor, seq, capacity)
        if record is not None and record.start_unix_ns / NS < since - CLOCK_STEP_SECONDS:
            return seq
    return oldest


def _row(identity: RankIdentity, record: StepRecord) -> StepRow:
    """Lay out a record in the order of `STEP_COLUMNS`.

    Where the ring does not know its rank's groups, the layout is that of a data-parallel job: one
    gradient group of all, and each rank's layers its own.
    """
    layout = (identity.dp_group, identity.tp_group, identity.pp_stage)
    dp_group, tp_group, pp_stage = (0, identity.rank, 0) if None in layout else layout
    return (
        identity.job_id,
        record.step,
        identity.rank,
        identity.node,
        identity.local_rank,
        round(record.start_unix_ns / NS, 6),
        round(record.step_ns / NS, 9),
        _seconds(record.data_ns),
        _seconds(record.compute_ns),
        _seconds(record.sync_ns),
        dp_group,
        tp_group,
        pp_stage,
        record.attempt,
        None if record.samples == UNKNOWN_SAMPLES else record.samples,
        record.flags & ~TIMING_MASK,
        record.timing_source,
        _seconds(record.cpu_wait_ns),
        _seconds(record.other_ns),
        record.microbatches,
        _seconds(record.checkpoint_ns),
        _seconds(record.evaluation_ns),
        _seconds(record.copies_ns),
        _seconds(record.host_late_ns),
    )


def _seconds(duration_ns: int) -> float | None:
    return None if duration_ns == NOT_MEASURED else round(duration_ns / NS, 9)
