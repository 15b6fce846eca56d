"""The steps of the ranks on this node, as recorded by their probes in rings.

Totals continue across restarts of a rank's process and, see `continuation`, of the agent. A job's
series disappear ten minutes after all its ranks have ended.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from rankscope_agent.contract.metrics import reported
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import RankIdentity, Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import Incomplete, NoData
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.probed import Probed
from rankscope_agent.sources.training import starts
from rankscope_agent.sources.training.background_follower import BackgroundFollower
from rankscope_agent.sources.training.continuation import Continuation, nothing_before
from rankscope_agent.sources.training.files import MAX_RINGS
from rankscope_agent.sources.training.followed_ring import FollowedRing, goes_on_beside
from rankscope_agent.sources.training.follower import RingFollower
from rankscope_agent.sources.training.format import StepRecord
from rankscope_agent.sources.training.identity import rank_identity
from rankscope_agent.sources.training.job_work import job_work
from rankscope_agent.sources.training.rank_info import info_sample
from rankscope_agent.sources.training.rank_samples import job_totals, rank_samples
from rankscope_agent.sources.training.read_turns import ReadTurns
from rankscope_agent.sources.training.reported import Signal
from rankscope_agent.sources.training.reported_totals import SignalTotals
from rankscope_agent.sources.training.restart_ratios import LEARNING_RATE, WORLD_SIZE
from rankscope_agent.sources.training.shares import forget_pod, forget_ranks
from rankscope_agent.sources.training.span_totals import SpanTotals
from rankscope_agent.sources.training.spans import Span
from rankscope_agent.sources.training.starts import RankStart, Surroundings
from rankscope_agent.sources.training.totals import (
    ENDED_JOB_SECONDS,
    NS,
    JobTotals,
    RankTotals,
    note_unread,
)
from rankscope_agent.sources.training.totals_file import TotalsFile

TURN_RECORDS = 512
"""Records read of one ring before the next one gets its turn, a millisecond or two of work."""

STATE_FILE = "step_totals.json"

MAX_RANKS = MAX_RINGS + 256
"""Ranks remembered, including ended ones; beyond that, one of the job with most ranks is dropped
early. There is room for ended ones even while pods hold as many rings as an agent reads."""


LATE_SECONDS = 10.0
"""How long a scan for rings may last before the run counts as failed: two pauses between scans."""

FIRST_NAMES_SECONDS = 5.0
"""How long a run without any job waits for the names of pods' jobs: half of a collector's deadline.
Later runs find them, and rings keep what is written meanwhile."""


def create(config: Config, pods: PodDirectory) -> TrainingCollector:
    """Create the collector of the node's rings, whose jobs have the names that Kubernetes uses."""
    made = TrainingCollector(
        config.ring_dir,
        config.kubelet,
        config.node_name,
        time.time,
        pods,
        ReadTurns(once=config.once),
    )
    made.checkpoint_objective_seconds = config.checkpoint_objective_seconds
    if not config.once:
        store = TotalsFile(config.state_dir / STATE_FILE)
        rings = (str(config.ring_dir), str(config.kubelet))
        made.continue_after(Continuation(store, rings, time.time()))
    return made


class TrainingCollector:
    """Reads the node's rings and sums them up.

    Args:
        ring_dir: the node's own directory of rings.
        kubelet: the kubelet's directory, which contains those of pods.
        node: name of this node.
        clock: returns the Unix time in seconds.
        pods: what is known about the node's pods.
        turns: determines which ring is read next, and when a run has read enough.

    `checkpoint_objective_seconds` is exported for the alert that compares it; 0 means none.
    """

    checkpoint_objective_seconds = 0.0

    def __init__(
        self,
        ring_dir: Path,
        kubelet: Path,
        node: str,
        clock: Callable[[], float],
        pods: PodDirectory | None = None,
        turns: ReadTurns | None = None,
    ) -> None:
        self._pods = pods or PodDirectory()
        self._ring_dir = ring_dir
        self._kubelet = kubelet
        self._node = node
        self._clock = clock
        self._follower = BackgroundFollower(RingFollower(ring_dir, kubelet, self._pods))
        self._jobs: dict[str, JobTotals] = {}
        self._corrupt = 0
        self._turns = turns or ReadTurns()
        self._continuation = nothing_before()
        self._boot = partial(boot_unix_seconds, clock)

    def continue_after(self, continuation: Continuation) -> None:
        """Continue the totals of an earlier agent, and leave them to the next one."""
        self._continuation = continuation
        self._corrupt = continuation.corrupt

    def finish(self) -> None:
        """Leave the totals to the next agent, at the end of this one."""
        self._continuation.save_last(self._jobs, self._follower.rings, self._corrupt, self._clock())

    def collect(self) -> Iterator[Sample]:
        """Yield the state of every rank.

        Raises:
            NoData: there is no directory of rings, neither the node's nor a pod's.
            Incomplete: the scan for new rings takes too long; known ranks are still served.
        """
        if not self._jobs:
            self._pods.wait(FIRST_NAMES_SECONDS)
        now = self._clock()
        for job_id in self._follower.close_disowned(now):
            self._jobs.pop(job_id, None)  # what was recorded under its name is in its sums
            self._continuation.forget((job_id,))
        for pod_uid, job_id in self._follower.close_renamed():
            if forget_pod(self._jobs, pod_uid, job_id):
                self._continuation.forget((job_id,))
        self._follower.rescan(now)
        self._read(now)
        for followed in self._follower.take_lost():
            note_unread(self._jobs, followed.ring.header)
        self._follower.close_finished()
        self._forget(now)
        self._continuation.forget_unseen(now - ENDED_JOB_SECONDS)
        self._continuation.save(self._jobs, self._follower.rings, self._corrupt, now)
        late = self._follower.late_seconds
        if not (self._follower.directories or self._jobs or late):
            raise NoData(self._absence())
        self._pods.note_probed(self._probed())
        if late >= LATE_SECONDS or (late and not self._jobs):
            raise Incomplete(tuple(self._samples()), self._lateness(late))
        yield from self._samples()

    def _lateness(self, late_seconds: float) -> str:
        return (
            f"the scan for new rings has lasted {late_seconds:.0f} s and is at"
            f" {self._follower.late_at!r}; known ranks are read, new ones are not seen yet"
        )

    def _samples(self) -> Iterator[Sample]:
        yield from self._own_samples()
        for job_id, job in sorted(self._jobs.items(), key=lambda one: _turn(one[1])):
            yield from self._job_samples(job_id, job)

    def _probed(self) -> Probed:
        ranks = {(job_id, rank) for job_id, job in self._jobs.items() for rank in job.ranks}
        sizes = {
            job_id: {r.identity.world_size or 0 for r in job.ranks.values() if r.alive} - {0}
            for job_id, job in self._jobs.items()
        }
        return Probed(frozenset(ranks), self._attempts(), self._follower.loaded_pods, sizes)

    def _attempts(self) -> Mapping[str, int]:
        """Return how often torchrun has restarted each job's processes."""
        return {
            job_id: max(attempts)
            for job_id, job in self._jobs.items()
            if (
                attempts := [
                    rank.identity.attempt
                    for rank in job.ranks.values()
                    if rank.alive and rank.identity.launcher == "torchrun"
                ]
            )
        }

    def _absence(self) -> str:
        """Report what is wrong with either directory of rings."""
        pods, barred = self._kubelet / "pods", self._follower.pods_failure
        if barred is not None:
            volumes = f"{pods} {barred}"
        elif os.path.lexists(pods):
            volumes = f"no pod under {pods} has a volume named rankscope"
        else:
            volumes = f"{pods} does not exist"
        refused = Counter(self._follower.refused()) - Counter([barred.reason] if barred else [])
        state = f"cannot be read ({', '.join(refused)})" if refused else "does not exist"
        return (
            f"no ring directory: {self._ring_dir} {state} and {volumes}; say where probes write"
            " with RANKSCOPE_RING_DIR or --path.ring-dir"
        )

    def _read(self, now: float) -> None:
        """Read all rings in turns, for as long as a run may take.

        A ring without new records gets a turn all the same, in which its liveness is recorded.
        """

        def read(followed: FollowedRing) -> bool:
            taken = self._read_ring(followed, now)
            more = taken > 0 and not followed.cursor.at_newest
            followed.behind &= more
            return more

        rings = self._follower.rings
        self._continuation.place(rings, self._jobs)
        self._turns.take(rings, read)
        behind: defaultdict[str, set[int]] = defaultdict(set)
        for followed in rings:
            if followed.behind:
                behind[followed.ring.header.job_id].add(followed.ring.header.rank)
        for job_id, job in self._jobs.items():
            job.note_counted(behind.get(job_id, frozenset()))

    def _read_ring(self, followed: FollowedRing, now: float) -> int:
        """Read a ring, or give it up if it cannot be read; return the number of records read."""
        try:
            return self._add_ring(followed, now)
        except OSError as error:
            header = followed.ring.header
            job = self._jobs.get(header.job_id)
            if job is not None and header.rank in job.ranks:
                job.ranks[header.rank].note_position(followed.key, followed.position)
            self._follower.give_up(followed, error, now)
            return 0

    def _add_ring(self, followed: FollowedRing, now: float) -> int:
        """Add a ring's next records; return their number.

        Raises:
            OSError: the ring cannot be read.
        """
        cursor, created_ns = followed.cursor, followed.ring.header.created_unix_ns
        lost, corrupt, first_seq = cursor.lost, cursor.corrupt, cursor.next_seq
        last: StepRecord | None = None
        for records in followed.read(now, TURN_RECORDS):
            last = records[-1]
            job = self._job(followed)
            rank = self._rank(job, followed, last)
            rank.restarts.begin(followed.process, created_ns)
            job.observe(rank.add(records, created_ns, cursor.counted))
        if followed.liveness == "alive":
            self._job(followed).active_unix_seconds = now
        elif last is not None:
            ended = min(now, (last.start_unix_ns + last.step_ns) / NS)
            job = self._job(followed)
            job.active_unix_seconds = max(job.active_unix_seconds, ended)
        self._note_rank(followed, cursor.lost - lost, now)
        self._corrupt += cursor.corrupt - corrupt
        return cursor.next_seq - first_seq - (cursor.lost - lost)

    def _note_rank(self, followed: FollowedRing, lost: int, now: float) -> None:
        """Update what changes without a record, and add a rank that has none yet."""
        header = followed.ring.header
        job = self._jobs.get(header.job_id)
        if job is None or goes_on_beside(self._follower.rings, followed, now):
            return
        rank = job.ranks.get(header.rank)
        if rank is None or rank.created_unix_ns < header.created_unix_ns:
            rank = self._rank(job, followed, None)
        if rank.created_unix_ns == header.created_unix_ns:
            rank.alive = followed.liveness == "alive"
            rank.ended_unix_seconds = followed.ended_unix_seconds
        rank.lost += lost
        size = float(header.world_size) if header.world_size else None
        rank.restarts.begin(followed.process, header.created_unix_ns)
        rank.restarts.note(WORLD_SIZE, size, header.created_unix_ns)
        if followed.signals:
            rank.signals = rank.signals or SignalTotals()
            values = followed.signals.look()
            if followed.signals.left_out and values:
                rank.signals.leave_out(values)
                followed.signals.left_out = False
            rank.signals.note(values, header.created_unix_ns)
            rate = values.get(Signal.LEARNING_RATE)
            rank.restarts.note(LEARNING_RATE, rate.value if rate else None, header.created_unix_ns)
        ended: Sequence[Span] = ()
        if followed.spans:
            rank.spans = rank.spans or SpanTotals()
            ended, still_open = followed.spans.look(now, alive=followed.liveness == "alive")
            counted = followed.spans.counted
            rank.spans.add(ended, header.created_unix_ns, counted)
            shared = job.writers.add(header.rank, followed.ring.pod_uid, ended, counted)
            for writer in job.ranks.keys() & shared:
                known = job.ranks[writer].shared_unix_ns or 0
                job.ranks[writer].shared_unix_ns = max(known, shared[writer])
            if rank.created_unix_ns == header.created_unix_ns:
                rank.spans.note_open(still_open)
        rank.note_position(followed.key, followed.position)
        if rank.created_unix_ns == header.created_unix_ns:
            job.replica_groups = header.replica_groups
            rank.start.note(header, followed.first_step_unix_ns, ended, self._boot)

    def _job(self, followed: FollowedRing) -> JobTotals:
        job_id = followed.ring.header.job_id
        job = self._jobs.get(job_id)
        if job is None:
            job = self._jobs[job_id] = self._continuation.job(job_id)
        return job

    def _rank(self, job: JobTotals, followed: FollowedRing, last: StepRecord | None) -> RankTotals:
        header = followed.ring.header
        known = header.rank in job.ranks
        rank = job.rank(self._identity(followed, last), header.created_unix_ns)
        if not known:
            self._continuation.begin_rank(header.job_id, header.rank, rank)
        return rank

    def _identity(self, followed: FollowedRing, last: StepRecord | None) -> RankIdentity:
        alive = followed.liveness == "alive"
        return rank_identity(followed.ring, self._node, last, alive=alive)

    def _forget(self, now: float) -> None:
        """Drop the jobs that ended long enough ago, and more if there are too many ranks.

        Those with an open ring stay, whatever ranks are made up in addition: there are no more of
        them than rings.
        """
        for job_id, job in tuple(self._jobs.items()):
            if now - job.active_unix_seconds >= ENDED_JOB_SECONDS:
                del self._jobs[job_id]
                self._continuation.forget((job_id,))
        excess = sum(len(job.ranks) for job in self._jobs.values()) - MAX_RANKS
        if excess > 0:
            headers = [followed.ring.header for followed in self._follower.rings]
            open_ranks = {(header.job_id, header.rank) for header in headers}
            forget_ranks(self._jobs, open_ranks, excess)

    def _own_samples(self) -> Iterator[Sample]:
        yield metrics.RINGS.sample(len(self._follower.rings))
        yield metrics.RECORDS_CORRUPT.sample(self._corrupt)
        if self.checkpoint_objective_seconds:
            yield reported.CHECKPOINT_OBJECTIVE.sample(self.checkpoint_objective_seconds)
        for reason, count in self._follower.refused().items():
            if count:
                yield metrics.RINGS_REJECTED.sample(count, reason=reason)

    def _job_samples(self, job_id: str, job: JobTotals) -> Iterator[Sample]:
        if None in job.counted:
            yield from job_totals(job_id, job)
        if job.writers.paths is not None:
            yield reported.CHECKPOINT_SHARED.sample(job.writers.paths, job_id=job_id)
        present = job.present()
        size = max((rank.identity.world_size or 0 for _, rank in present), default=0)
        if job.replica_groups > 1 and size >= job.replica_groups:
            in_group = size // job.replica_groups
            yield metrics.JOB_REPLICA_GROUP_RANKS.sample(in_group, job_id=job_id)
        living = [rank for _, rank in present if rank.alive] or [rank for _, rank in present]
        yield from starts.samples(job_id, [self._start(rank) for rank in living])
        ever = [rank.signals for rank in job.ranks.values()]
        ever += self._continuation.unseen(job_id)
        yield from job_work(job_id, ever, [rank.signals for _, rank in present])
        for number, rank in present:
            labels = (job_id, str(number))
            yield info_sample(rank.identity, self._pods.rank_location(rank.identity))
            yield from rank_samples(labels, rank, counted=number in job.counted)

    def _start(self, rank: RankTotals) -> tuple[RankIdentity, RankStart, Surroundings]:
        location = self._pods.rank_location(rank.identity)
        around = Surroundings(location.pod_created, location.container_started)
        return rank.identity, rank.start, around


def _turn(job: JobTotals) -> tuple[bool, float]:
    """Return the sort key of jobs on the page, whose limit cuts the last ones.

    Running jobs keep the order in which they were first seen, so that newcomers cannot push their
    series off the page. Ended ones follow, the latest first: others have been scraped more often.
    """
    runs = any(rank.alive for rank in job.ranks.values())
    return not runs, 0.0 if runs else -job.active_unix_seconds


def boot_unix_seconds(clock: Callable[[], float]) -> float:
    """Return when the node booted, by a clock that returns the Unix time."""
    return clock() - time.clock_gettime(time.CLOCK_BOOTTIME)
