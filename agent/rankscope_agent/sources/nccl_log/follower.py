"""Follows the logs of a node's pods and stores their facts about NCCL and steps, within limits.

Each log is read once. Two parsers per pod read the logs of all its containers, one for NCCL's lines
and one for lines about steps; logs outside of pods share a pair.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankscope_agent.contract.fair_shares import choose, take_turns
from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.sources.nccl_log import follower_state
from rankscope_agent.sources.nccl_log.followed_log import Following
from rankscope_agent.sources.nccl_log.pod import PodLogs
from rankscope_agent.sources.nccl_log.pod_limits import Ended, one_too_many, over_share
from rankscope_agent.sources.nccl_log.recent_logs import RecentLogs
from rankscope_agent.sources.nccl_log.segments import LogRejectedError
from rankscope_agent.sources.nccl_log.step_lines.own import OwnLines
from rankscope_agent.sources.nccl_log.streams import (
    MAX_STREAMS,
    NO_POD,
    LogLocation,
    LogStream,
    log_name,
    of_replaced_pods,
    pattern_logs,
    pod_logs,
    stream_limit,
)
from rankscope_agent.sources.pods.log_directories import PodIdentity
from rankscope_agent.sources.run_time import time_left

log = logging.getLogger(__name__)

MAX_JOBS = 64
"""Pods that are remembered at a time: four per GPU of the largest nodes."""

MAX_PENDING = 64 << 10
"""Bytes kept of a line without an end, per log: the CRI splits lines at 16 KiB."""

MAX_BYTES = 16 << 20
"""Memory that what NCCL logged of all pods may use: a sixteenth of the DaemonSet's limit (256Mi),
and four pods at their own limit."""


class NcclFollower:
    """All logs of the node.

    Args:
        pods: the kubelet's directory of logs.
        patterns: further logs; the last part of a path may contain wildcards.
        cpu_clock: CPU seconds of the calling thread.
        budget_seconds: CPU time that one reading may take.
        timer: returns monotonic seconds.
        own: the user's pattern for lines about steps.
        ended: returns True for the UID of a pod that has ended.
    """

    def __init__(
        self,
        pods: Path,
        patterns: tuple[Path, ...],
        cpu_clock: Callable[[], float],
        budget_seconds: float,
        timer: Callable[[], float] = time.monotonic,
        own: OwnLines | None = None,
        ended: Ended = lambda _: False,
    ) -> None:
        self._own = own
        self._ended = ended
        self._most = stream_limit()
        self.rejected: Counter[str] = Counter()
        self.skipped_bytes = 0
        self.read_bytes = 0
        self._pods = pods
        self._patterns = patterns
        self._cpu_clock = cpu_clock
        self._budget = budget_seconds
        self._timer = timer
        self._followed: dict[Path, Following] = {}
        self._recent = RecentLogs()
        self._jobs: dict[PodIdentity, PodLogs] = {}
        self._resume: follower_state.Positions = {}
        self._departed: list[PodLogs] = []
        self._replaced: Set[PodIdentity] = frozenset()
        self._turn = 0

    @property
    def logs(self) -> int:
        """The number of logs being followed."""
        return len(self._followed)

    def pods(self) -> Iterator[PodLogs]:
        """Yield all pods of which any log has been read."""
        return iter(self._jobs.values())

    def departed(self) -> Sequence[PodLogs]:
        """Return the pods that have gone since the previous call."""
        gone, self._departed = self._departed, []
        return gone

    def jobs(self) -> Iterator[PodLogs]:
        """Yield the pods whose logs contain lines of NCCL."""
        return (job for job in self._jobs.values() if job.has_content)

    def stepping_jobs(self, now: float) -> Iterator[PodLogs]:
        """Yield the pods whose logs contain lines about steps."""
        for job in self._jobs.values():
            job.steps.sum_up(now)
            if job.steps.has_content:
                yield job

    def lag_bytes(self) -> int:
        """Return the number of bytes that the last run left unread."""
        return sum(one.stream.left() for one in self._followed.values() if one.behind)

    def lag_lines(self) -> int:
        """Return an estimate of the number of these lines."""
        return sum(one.stream.left_lines() for one in self._followed.values() if one.behind)

    def rescan(self, now: float) -> bool:
        """Find logs that appeared, disappeared or were rotated; return True if there are any.

        Args:
            now: the Unix time.

        Raises:
            OSError: the directory of pods' logs cannot be read.
        """
        self.rejected.clear()
        locations = {location.path: location for location in self._locations()}
        replaced = of_replaced_pods(locations.values(), self._replaced)
        self._replaced = {locations[path].owner for path in replaced}
        self._finish([path for path in self._followed if path in replaced], now)
        for path in replaced:
            del locations[path]
        self._forget_gone(locations.values())
        there = (
            self._pods.is_dir()
            or bool(self.rejected)
            or any(one.parent.is_dir() for one in self._patterns)
        )
        self._put_former_logs_first(locations, now)
        for path in [path for path in self._followed if path not in locations]:
            self._end(path)
        for location in self._chosen(locations.values()):
            self._follow(location)
        owners = {location.owner for location in locations.values()}
        for owner in [owner for owner in self._jobs if owner not in owners]:
            self._departed.append(self._jobs.pop(owner))
        del self._departed[:-MAX_JOBS]
        self._resume_stopped()
        self._forget_outside(locations)
        return there

    def _forget_outside(self, locations: Mapping[Path, LogLocation]) -> None:
        """Forget the state of jobs outside of pods once all logs in which NCCL spoke are gone."""
        outside = self._jobs.get(NO_POD)
        paths = [path for path, location in locations.items() if location.owner == NO_POD]
        followed = (self._followed[path].has_content for path in paths if path in self._followed)
        waiting = (self._resume[path][1] for path in paths if path in self._resume)
        if outside is not None and outside.facts.processes and not (any(followed) or any(waiting)):
            outside.begin_anew()

    def forget_outside_before(self, began: float) -> None:
        """Forget what NCCL logged outside of pods before this Unix time, when ranks there began."""
        outside = self._jobs.get(NO_POD)
        if outside is not None:
            outside.forget_before(began)

    def _locations(self) -> Iterator[LogLocation]:
        if self._pods.is_dir():
            yield from pod_logs(self._pods)
        for pattern in self._patterns:
            yield from pattern_logs(pattern, self.rejected)

    def _forget_gone(self, locations: Collection[LogLocation]) -> None:
        """Forget the positions in logs whose container, or which themselves outside one, are gone.

        A container that was restarted has left a log that is still to be read to its end.
        """
        there = {location.path for location in locations}
        containers = {location.path.parent for location in locations if location.owner != NO_POD}
        self._resume = {
            path: left
            for path, left in self._resume.items()
            if path in there or path.parent in containers
        }

    def _chosen(self, locations: Collection[LogLocation]) -> Sequence[LogLocation]:
        """Return the logs to follow: shared by namespaces and pods, of each first the current ones.

        Outside of pods first the newest ones. A log that is dropped continues from its position
        once there is room again.
        """
        in_order = self._recent.in_order(locations, self._followed.keys(), self._most)
        chosen = choose(in_order, lambda one: one.owner.holder, self._most)
        self.rejected["too_many"] += len(locations) - len(chosen)
        kept = {location.path for location in chosen}
        for path in [path for path in self._followed if path not in kept]:
            self._set_aside(path)
        return chosen

    def _set_aside(self, path: Path) -> None:
        """Stop following a log, to continue from its position when it is followed again."""
        followed = self._followed[path]
        with suppress(OSError):  # what is left of an archive is unknown
            position = followed.stream.leave(followed.framing.pending_bytes)
            if position is not None:
                self._resume[path] = (position, followed.has_content)
        self._end(path)

    def _follow(self, location: LogLocation) -> None:
        """Begin to follow a log, or check whether a followed one was rotated."""
        try:
            followed = self._followed.get(location.path)
            if followed is not None:
                followed.stream.look_for_rotation()
            else:
                position, has_content = self._resume.pop(location.path, (None, False))
                stream = LogStream(location, position)
                self._followed[location.path] = Following(
                    stream, Unframer(MAX_PENDING), has_content=has_content
                )
        except LogRejectedError as error:
            self.rejected[error.reason] += 1

    def _put_former_logs_first(self, locations: dict[Path, LogLocation], now: float) -> None:
        """Follow the log of a container that was restarted to its end, then the one after it.

        Args:
            locations: the newest log of each container by path; changed in place.
            now: the Unix time.
        """
        newest = {one.path.parent: one for one in locations.values() if one.owner != NO_POD}
        former = [p for p in self._followed if p not in locations and p.parent in newest]
        waiting = [p for p in self._resume if p not in locations and p.parent in newest]
        for path in (*self._finish(former, now), *waiting):
            newer = newest[path.parent]
            locations.pop(newer.path, None)
            locations[path] = LogLocation(path, newer.owner)

    def _finish(self, paths: Sequence[Path], now: float) -> list[Path]:
        """Read on in logs of ended containers; return those whose end was not reached in time."""
        ended = {path: self._followed[path] for path in paths}
        for one in ended.values():
            one.behind = True
        in_time = time_left(self._cpu_clock, self._budget, self._timer)

        def read(path: Path) -> bool:
            return in_time() and self._read_one(ended[path], now)

        take_turns(ended, lambda path: ended[path].stream.location.owner.holder, read)
        unfinished = [path for path, one in ended.items() if one.behind and path in self._followed]
        for path, one in ended.items():
            if path not in unfinished:
                self._take_leave(one)
        return unfinished

    def _take_leave(self, followed: Following) -> None:
        """Forget the state that an ended container left."""
        job = self._jobs.get(followed.stream.location.owner)
        if job is not None:
            job.failures.end()
        if job is not None and followed.has_content:
            job.begin_anew()

    def _end(self, path: Path) -> None:
        followed = self._followed.pop(path, None)
        if followed is None:  # it could not be read
            return
        followed.stream.close()
        self.skipped_bytes += followed.stream.skipped_bytes
        job = self._jobs.get(followed.stream.location.owner)
        if job is not None:
            job.failures.leave(log_name(path))

    def read(self, now: float) -> None:
        """Read on in all logs, starting with a different one each time, within the time budget."""
        in_time = time_left(self._cpu_clock, self._budget, self._timer)
        followed = list(self._followed.values())
        for one in followed:
            one.behind = True
        self._turn += 1
        start = self._turn % len(followed) if followed else 0

        def read(one: Following) -> bool:
            return in_time() and self._read_one(one, now)

        take_turns(
            followed[start:] + followed[:start], lambda one: one.stream.location.owner.holder, read
        )
        self._bound()

    def _bound(self) -> None:
        """Keep all pods within the limit together: those furthest above their fair share forget.

        If they only stopped growing, what they hold would leave no room for any other pod.
        """
        left = sum(job.weight for job in self._jobs.values())
        for job in over_share(self._jobs, MAX_BYTES, self._ended):
            if left > MAX_BYTES:
                left -= job.weight
                job.forget()

    def _read_one(self, followed: Following, now: float) -> bool:
        """Read a piece of a log; return whether there may be more."""
        location = followed.stream.location
        try:
            data = followed.stream.read()
        except OSError as error:
            log.warning("cannot read %s: %s", location.path, error.strerror)
            self._set_aside(location.path)
            return False
        self.read_bytes += len(data)
        oversized = followed.framing.oversized
        text = followed.framing.feed(data) if data else b""
        if text:
            job = self._job(location.owner)
            knew_content = job.has_any_content
            name = log_name(location.path)
            fresh, written = followed.at_end, followed.written_at(now)
            followed.has_content |= job.feed(text, now, fresh=fresh, log=name, written=written)
            job.facts.unparsed += followed.framing.oversized - oversized
            if job.has_any_content and not knew_content:
                self._limit(job)
        followed.at_end = followed.stream.at_end
        followed.behind = not followed.at_end
        return followed.behind

    def _job(self, owner: PodIdentity) -> PodLogs:
        """Return what the logs of a pod show; one that is not followed makes room for another."""
        job = self._jobs.get(owner)
        if job is None:
            if len(self._jobs) >= MAX_STREAMS:
                read = {one.stream.location.owner for one in self._followed.values()}
                del self._jobs[next(known for known in self._jobs if known not in read)]
            job = self._jobs[owner] = PodLogs(owner, Facts(), self._own)
        return job

    def _limit(self, newcomer: PodLogs) -> None:
        """Keep the number of pods with content within its limit once another one has some.

        Beyond it, only the failures are read of one; see `one_too_many`.
        """
        known = [job for job in self._jobs.values() if job.has_any_content]
        if len(known) > MAX_JOBS:
            one_too_many(known, newcomer, self._ended).stop()

    def _resume_stopped(self) -> None:
        """Read all of pods again of which only the failures were read, as far as there is room."""
        known = sum(job.has_any_content for job in self._jobs.values())
        stopped = [job for job in self._jobs.values() if job.stopped]
        for job in stopped[: max(0, MAX_JOBS - known)]:
            job.stopped = False
        self.rejected["too_many"] += sum(job.stopped for job in stopped)

    def total_skipped_bytes(self) -> int:
        """Return the number of bytes that were rotated away unread or damaged in an archive."""
        open_ones = (followed.stream.skipped_bytes for followed in self._followed.values())
        return self.skipped_bytes + sum(open_ones)

    def state(self) -> dict[str, Any] | None:
        """Return where to continue after a restart; None while unknown."""
        positions = dict(self._resume)
        for path, followed in self._followed.items():
            position = followed.stream.position(followed.framing.pending_bytes)
            if position is None:
                return None
            positions[path] = (position, followed.has_content)
        return follower_state.to_json(positions, self._jobs.values())

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, before the first scan.

        Raises:
            rankscope_agent.sources.nccl_log.state.StateError: it is not one of this version.
        """
        self._resume, self._jobs = follower_state.from_json(state, self._own)

    def close(self) -> None:
        """Close all files."""
        for path in list(self._followed):
            self._end(path)
