"""How totals continue where an earlier agent ended, or begin anew without counting anything twice.

Prometheus takes a counter that falls for one that began at zero: whatever it then shows is an
increase of that moment. So a job continues with the totals of the earlier agent, and of each ring
only those records count that the earlier agent cannot have counted. If these totals are unknown, or
may be smaller than those last shown, a job whose rings no longer hold all of their records begins
anew: with the newest step of each ring, without all that is older.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from rankscope_agent.sources.training.files import MAX_RINGS
from rankscope_agent.sources.training.followed_ring import FollowedRing
from rankscope_agent.sources.training.format import MAX_SEQ
from rankscope_agent.sources.training.kept_totals import (
    KeptJob,
    KeptRank,
    job_from,
    restore_job,
    restore_rank,
    state_of_job,
)
from rankscope_agent.sources.training.reported_totals import SignalTotals
from rankscope_agent.sources.training.shares import largest_jobs
from rankscope_agent.sources.training.spans import SpanPosition
from rankscope_agent.sources.training.totals import (
    ENDED_JOB_SECONDS,
    MAX_POSITIONS,
    NS,
    JobTotals,
    Position,
    RankTotals,
)

log = logging.getLogger(__name__)

SAVE_SECONDS = 10.0
"""Time between two writes. What came after the last one is read again from the rings, so it matters
only for how much of a ring is read, and for what disappears together with the agent. The first run
makes one: from then on what the earlier agent left may be smaller than what was last shown."""

MAX_KEPT_RANKS = 2 * MAX_RINGS
"""Ranks that an agent continues: as many as it has itself, and as many that did not come back. They
are handed on from agent to agent, and must not become more with each."""

VERSION = 1

MALFORMED = (KeyError, TypeError, ValueError, OverflowError, AttributeError)
"""What values of a wrong type raise."""


class TotalsStore(Protocol):
    """Where an agent leaves its totals to the next one."""

    def read(self) -> Mapping[str, Any]:
        """Return what was written; empty if there is nothing."""
        ...

    def write(self, state: Mapping[str, Any]) -> None:
        """Write without waiting."""
        ...

    def write_last(self, state: Mapping[str, Any]) -> None:
        """Write at the end of the agent."""
        ...


class Continuation:
    """What an earlier agent has counted, and how the totals of each job begin.

    Args:
        store: where totals are left; None for nowhere.
        rings: where this agent looks for rings; totals of others are not its own.
        began_unix_seconds: when this agent began.
    """

    def __init__(
        self, store: TotalsStore | None, rings: Sequence[str], began_unix_seconds: float
    ) -> None:
        self._store = store
        self._rings = list(rings)
        self._began = self._counted_until = began_unix_seconds
        self._saved = float("-inf")
        self._kept: dict[str, KeptJob] = {}
        self._beginning: dict[str, KeptJob] = {}
        self._waiting: dict[str, dict[int, KeptRank]] = {}
        self._continued: dict[str, bool | None] = {}
        self.corrupt = 0
        """Damaged records that the earlier agent counted."""
        self._restore(store.read() if store else {})

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state and state.get("version") != VERSION:
            log.warning(
                "cannot continue the totals of steps (version %r, this agent reads %d): those of"
                " jobs whose rings have lost their first records begin anew",
                state.get("version"),
                VERSION,
            )
        if state.get("version") != VERSION or state.get("rings") != self._rings:
            return
        try:
            corrupt, ended = int(state["corrupt"]), state["ended"]
            until = self._began if ended is None else min(self._began, float(ended))
            found = {job_id: _job_or_none(job_id, job) for job_id, job in state["jobs"].items()}
        except MALFORMED as error:
            log.warning("cannot continue the totals of any job (%r)", error)
            return
        self.corrupt, self._counted_until = corrupt, until
        kept = {job_id: job for job_id, job in found.items() if job is not None}
        ranks = {job_id: len(job.ranks) for job_id, job in kept.items()}
        self._kept = kept
        for job_id in largest_jobs(ranks, sum(ranks.values()) - MAX_KEPT_RANKS):
            log.info("totals of job %s begin anew: it has too many ranks", job_id)
            del kept[job_id]

    def place(self, rings: Sequence[FollowedRing], jobs: Collection[str]) -> None:
        """Determine, for rings that have been found since, which records do not count.

        Args:
            rings: all open rings.
            jobs: the jobs that have totals.
        """
        there = {followed.ring.header.job_id for followed in rings}
        self.forget(self._continued.keys() - there - set(jobs))
        new: dict[str, list[FollowedRing]] = {}
        for followed in rings:
            if not followed.placed:
                new.setdefault(followed.ring.header.job_id, []).append(followed)
                followed.placed = True
        for job_id, of_job in new.items():
            if job_id not in self._continued:
                self._continued[job_id] = self._begins(job_id, of_job)
            for followed in of_job:
                self._place(followed, job_id)

    def _begins(self, job_id: str, found: Sequence[FollowedRing]) -> bool | None:
        """Return True if a job continues, False if it begins anew, None if its rings are whole."""
        kept = self._kept.get(job_id)
        if kept is None:
            older = [followed for followed in found if self._is_older(followed)]
            return None if _is_whole(older) else False
        there = {followed.key: followed for followed in found}
        exact = kept.exact or (
            all(_is_certain(rank, there) for rank in kept.ranks.values())
            and not self._may_have_counted_more(kept, there)
        )
        if exact:
            self._beginning[job_id], self._waiting[job_id] = kept, dict(kept.ranks)
        else:
            log.info("totals of job %s begin anew: their last values are not known", job_id)
        return exact

    def _place(self, followed: FollowedRing, job_id: str) -> None:
        continued = self._continued[job_id]
        position = self._position(followed, job_id) if continued else None
        if position is not None:
            followed.continue_after(position)
        elif continued and _is_passed_over(self._kept[job_id], followed):
            _pass_over(self._kept[job_id], followed)
        elif self._is_older(followed) and (continued is False or _lacks_records(followed)):
            followed.leave_out()

    def _position(self, followed: FollowedRing, job_id: str) -> Position | None:
        kept = self._kept[job_id].ranks.get(followed.ring.header.rank)
        return kept.positions.get(followed.key) if kept else None

    def _is_older(self, followed: FollowedRing) -> bool:
        """Return True if an earlier agent can have counted records of a ring."""
        return followed.ring.header.created_unix_ns < self._counted_until * NS

    def _may_have_counted_more(self, kept: KeptJob, there: Mapping[str, FollowedRing]) -> bool:
        """Return True if there is a ring that the earlier agent found after its last write.

        Unless it is whole, how much of it that agent counted is not known.
        """
        known = {key for rank in kept.ranks.values() for key in rank.positions}
        found_later = [there[key] for key in there.keys() - known]
        return any(
            self._is_older(one) and _lacks_records(one) and not _is_passed_over(kept, one)
            for one in found_later
        )

    def job(self, job_id: str) -> JobTotals:
        """Return the totals with which a job begins."""
        job = JobTotals()
        kept = self._beginning.pop(job_id, None)
        if kept is not None:
            restore_job(job, kept.state)
        return job

    def begin_rank(self, job_id: str, number: int, rank: RankTotals) -> None:
        """Give a rank that has just been seen the totals with which it begins."""
        kept = self._waiting.get(job_id, {}).pop(number, None)
        if kept is not None:
            restore_rank(rank, kept)

    def unseen(self, job_id: str) -> Iterable[SignalTotals | None]:
        """Return what ranks of a job reported that this agent has not seen."""
        return [rank.signals for rank in self._waiting.get(job_id, {}).values()]

    def forget(self, job_ids: Iterable[str]) -> None:
        """Drop what is known about jobs that have ended: they begin anew if they return."""
        for job_id in job_ids:
            for known in (self._kept, self._beginning, self._waiting, self._continued):
                known.pop(job_id, None)

    def forget_unseen(self, before_unix_seconds: float) -> None:
        """Drop jobs that ended before a time and that this agent has not seen since then."""
        if self._began < before_unix_seconds:
            unseen = self._kept.keys() - self._continued.keys()
            ended = [j for j in unseen if self._kept[j].active_unix_seconds < before_unix_seconds]
            self.forget(ended)

    def save(
        self,
        jobs: Mapping[str, JobTotals],
        rings: Iterable[FollowedRing],
        corrupt: int,
        now: float,
    ) -> None:
        """Write the totals, if that was long enough ago."""
        if self._store and not 0 <= now - self._saved < SAVE_SECONDS:
            self._saved = now
            self._store.write(self._state(jobs, rings, corrupt, None))

    def save_last(
        self,
        jobs: Mapping[str, JobTotals],
        rings: Iterable[FollowedRing],
        corrupt: int,
        now: float,
    ) -> None:
        """Write the totals at the end of the agent: nothing larger is shown any more."""
        if self._store:
            self._store.write_last(self._state(jobs, rings, corrupt, now))

    def _state(
        self,
        jobs: Mapping[str, JobTotals],
        rings: Iterable[FollowedRing],
        corrupt: int,
        ended: float | None,
    ) -> Mapping[str, Any]:
        open_rings, exact = {followed.key for followed in rings}, ended is not None
        unseen = {
            job_id: kept.state
            for job_id, kept in self._kept.items()
            if job_id in self._beginning or job_id not in self._continued
        }
        known = {
            job_id: state_of_job(job, open_rings, self._waiting.get(job_id, {}), exact=exact)
            for job_id, job in jobs.items()
        }
        return {
            "version": VERSION,
            "ended": ended,
            "rings": self._rings,
            "corrupt": corrupt,
            "jobs": {**unseen, **known},
        }


def nothing_before() -> Continuation:
    """Return the continuation of no earlier agent: all that rings contain counts."""
    return Continuation(None, (), 0.0)


def _job_or_none(job_id: str, state: Mapping[str, Any]) -> KeptJob | None:
    try:
        return job_from(state)
    except MALFORMED as error:
        log.warning("cannot continue the totals of job %s (%r)", job_id, error)
        return None


def _lacks_records(followed: FollowedRing) -> bool:
    """Return True if a ring has lost records of its process."""
    return followed.cursor.found > followed.cursor.capacity


def _is_whole(rings: Iterable[FollowedRing]) -> bool:
    """Return True if a job's rings hold all that its ranks did, as far as they show.

    A probe removes rings of ended processes if there are many; torchrun counts their attempts.
    """
    attempts: dict[int, set[int]] = {}
    for followed in rings:
        if _lacks_records(followed):
            return False
        header = followed.ring.header
        attempts.setdefault(header.rank, set()).add(header.attempt)
    return all(len(known) > max(known) for known in attempts.values())


def _is_passed_over(kept: KeptJob, followed: FollowedRing) -> bool:
    """Return True for a ring without a position that the earlier agent knew and forgot.

    Either its rank has too many, or it is of an earlier run of the job, which had been forgotten
    when this run began. Others may just have been found after the agent's last write.
    """
    header = followed.ring.header
    rank = kept.ranks.get(header.rank)
    known = rank.positions if rank else {}
    if len(known) >= MAX_POSITIONS:
        return header.created_unix_ns < min(at.created_ns for at in known.values())
    of_run = [at.created_ns for one in kept.ranks.values() for at in one.positions.values()]
    forgotten_ns = followed.last_step_unix_ns + round(ENDED_JOB_SECONDS * NS)
    return bool(of_run) and forgotten_ns < min(of_run)


def _pass_over(kept: KeptJob, followed: FollowedRing) -> None:
    """Leave out of the totals what a ring contains by now, all of it."""
    header = followed.ring.header
    rank = kept.ranks.get(header.rank)
    counted = rank.signals if rank else None
    if followed.signals and not (counted and counted.knows(header.created_unix_ns)):
        followed.signals.left_out = True
    found = followed.cursor.found
    followed.continue_after(Position(header.created_unix_ns, found, SpanPosition(MAX_SEQ)))


def _is_certain(rank: KeptRank, there: Mapping[str, FollowedRing]) -> bool:
    """Return True if all that an agent counted after it wrote its totals can be read again.

    Args:
        rank: as of then.
        there: the job's open rings, by their keys.
    """
    return all(
        key in there and there[key].cursor.next_seq <= rank.positions[key].seq + 1
        for key in rank.open
        if key in rank.positions
    )
