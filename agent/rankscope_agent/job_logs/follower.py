"""Follows the logs of a node's pods and keeps what NCCL and frameworks said in each, within bounds.

Each log is read once. Two parsers per pod take the logs of all its containers, one for NCCL's words
and one for lines about steps; logs outside of pods share a pair.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope_agent.job_logs import state as nccl_state
from rankscope_agent.job_logs import step_state
from rankscope_agent.job_logs.segments import LogRejectedError
from rankscope_agent.job_logs.streams import (
    MAX_STREAMS,
    LogOwner,
    LogPlace,
    LogStream,
    Position,
    pattern_logs,
    pod_logs,
)
from rankscope_agent.nccl.facts import Facts, Limits
from rankscope_agent.nccl.framing import Unframer
from rankscope_agent.nccl.parser import NcclLog
from rankscope_agent.nccl.verdict import JobVerdict, judge
from rankscope_agent.step_lines.parser import StepLog

log = logging.getLogger(__name__)

POD_LIMITS = Limits(members=4096, threads=4096, edges=20_000)
"""Remembered of one pod: 16 ranks with 256 communicators each, some megabytes at most."""

MAX_JOBS = 64
"""Pods with words of NCCL that are remembered at a time: four for each GPU of the largest nodes."""

MAX_PENDING = 64 << 10
"""Bytes kept of a line without an end, for each log: the CRI cuts lines at 16 KiB."""


VERDICT_SECONDS = 5.0
"""How often the verdict on a pod is made anew while its logs grow: several times within any
scrape interval in use, and a fifth of the cost of doing it each second."""


@dataclass(slots=True)
class Following:
    """A log and what takes off its wrapping.

    Args:
        at_end: it was read to its end, so that what comes next is new.
        behind: the last run did not get to its end.
    """

    stream: LogStream
    framing: Unframer
    at_end: bool = False
    behind: bool = True


class PodLogs:
    """What the logs of one pod said; times are Unix seconds, None before the first.

    Args:
        owner: the pod.
        facts: what an earlier run of the agent found.
    """

    def __init__(self, owner: LogOwner, facts: Facts) -> None:
        self.owner = owner
        self.steps = StepLog()
        self.last_line: float | None = None
        self.last_warning: float | None = None
        self._parser = NcclLog(POD_LIMITS, facts)
        self._verdict: JobVerdict | None = None
        self._grew = True
        self._judged = float("-inf")

    @property
    def facts(self) -> Facts:
        """Everything said so far."""
        return self._parser.facts

    @property
    def spoke(self) -> bool:
        """Whether NCCL or its watchdog said anything."""
        facts = self.facts
        return bool(facts.processes or facts.warnings or facts.version or facts.members)

    def feed(self, text: bytes, now: float, *, fresh: bool) -> None:
        """Take in whole lines; `fresh` says that they were written since the last reading."""
        self.steps.feed(text, now, now if fresh else None)
        before = sum(warning.count for warning in self.facts.warnings.values())
        if not self._parser.feed(text):
            return
        self.last_line = now
        self._grew = True
        if sum(warning.count for warning in self.facts.warnings.values()) > before:
            self.last_warning = now

    def verdict(self, now: float) -> JobVerdict:
        """Return what the logs prove by now, or did a moment ago."""
        late = not 0 <= now - self._judged < VERDICT_SECONDS
        if self._verdict is None or (self._grew and late):
            self.sum_up()
            self._verdict = judge(self.facts)
            self._grew, self._judged = False, now
        return self._verdict

    def sum_up(self) -> None:
        """Count the connections gathered so far."""
        self._parser.sum_up()


class NcclFollower:
    """All logs of the node.

    Args:
        pods: the kubelet's directory of logs.
        patterns: further logs; the last part of a path may hold wildcards.
        cpu_clock: CPU seconds of the calling thread.
        budget_seconds: CPU time that one reading may take.
    """

    def __init__(
        self,
        pods: Path,
        patterns: tuple[Path, ...],
        cpu_clock: Callable[[], float],
        budget_seconds: float,
    ) -> None:
        self.rejected: Counter[str] = Counter()
        self.skipped_bytes = 0
        self.read_bytes = 0
        self._pods = pods
        self._patterns = patterns
        self._cpu_clock = cpu_clock
        self._budget = budget_seconds
        self._followed: dict[Path, Following] = {}
        self._jobs: dict[LogOwner, PodLogs] = {}
        self._resume: dict[str, Position] = {}
        self._turn = 0

    @property
    def logs(self) -> int:
        """How many logs are followed."""
        return len(self._followed)

    def jobs(self) -> Iterator[PodLogs]:
        """Yield the pods in whose logs NCCL spoke."""
        return (job for job in self._jobs.values() if job.spoke)

    def stepping_jobs(self, now: float) -> Iterator[PodLogs]:
        """Yield the pods in whose logs there are lines about steps."""
        for job in self._jobs.values():
            job.steps.sum_up(now)
            if job.steps.spoke:
                yield job

    def lag_bytes(self) -> int:
        """Return the bytes that the last run left unread."""
        return sum(one.stream.left() for one in self._followed.values() if one.behind)

    def lag_lines(self) -> int:
        """Return about how many lines these are."""
        return sum(one.stream.left_lines() for one in self._followed.values() if one.behind)

    def rescan(self) -> bool:
        """Look for logs that came, went or were rotated; say whether there is a place for any.

        Raises:
            OSError: the directory of pods' logs cannot be read.
        """
        self.rejected.clear()
        places = {place.path: place for place in self._places()}
        there = self._pods.is_dir() or bool(self._patterns)
        for path in [path for path in self._followed if path not in places]:
            self._end(path)
        for place in places.values():
            self._follow(place)
        owners = {place.owner for place in places.values()}
        for owner in [owner for owner in self._jobs if owner not in owners]:
            del self._jobs[owner]
        return there

    def _places(self) -> Iterator[LogPlace]:
        if self._pods.is_dir():
            yield from pod_logs(self._pods)
        for pattern in self._patterns:
            yield from pattern_logs(pattern)

    def _follow(self, place: LogPlace) -> None:
        """Begin to follow a log, or see whether one that is followed was rotated."""
        try:
            followed = self._followed.get(place.path)
            if followed is not None:
                followed.stream.look_for_rotation()
            elif len(self._followed) >= MAX_STREAMS:
                self.rejected["too_many"] += 1
            else:
                stream = LogStream(place, self._resume.pop(str(place.path), None))
                self._followed[place.path] = Following(stream, Unframer(MAX_PENDING))
        except LogRejectedError as error:
            self.rejected[error.reason] += 1

    def _end(self, path: Path) -> None:
        stream = self._followed.pop(path).stream
        self.skipped_bytes += stream.skipped_bytes
        stream.close()

    def read(self, now: float) -> None:
        """Read on in all logs, beginning with another one each time, within the time budget."""
        end = self._cpu_clock() + self._budget
        followed = list(self._followed.values())
        for one in followed:
            one.behind = True
        self._turn += 1
        start = self._turn % len(followed) if followed else 0
        waiting = followed[start:] + followed[:start]
        while waiting:
            waiting = [
                one for one in waiting if self._cpu_clock() < end and self._read_one(one, now)
            ]

    def _read_one(self, followed: Following, now: float) -> bool:
        """Read a piece of a log; return whether there may be more."""
        place = followed.stream.place
        try:
            data = followed.stream.read()
        except OSError as error:
            log.warning("cannot read %s: %s", place.path, error.strerror)
            self._end(place.path)
            return False
        self.read_bytes += len(data)
        oversized = followed.framing.oversized
        text = followed.framing.feed(data) if data else b""
        if text:
            job = self._job(place.owner)
            if job is not None:
                job.feed(text, now, fresh=followed.at_end)
                job.facts.unparsed += followed.framing.oversized - oversized
        followed.at_end = followed.stream.at_end
        followed.behind = not followed.at_end
        return followed.behind

    def _job(self, owner: LogOwner) -> PodLogs | None:
        """Return the pod's facts; None where there is no room for one more pod."""
        job = self._jobs.get(owner)
        if job is None:
            silent = [
                name for name, known in self._jobs.items() if not (known.spoke or known.steps.spoke)
            ]
            if len(self._jobs) >= MAX_JOBS and silent:
                del self._jobs[silent[0]]
            if len(self._jobs) >= MAX_JOBS:
                return None
            job = self._jobs[owner] = PodLogs(owner, Facts())
        return job

    def total_skipped_bytes(self) -> int:
        """Return the bytes that were rotated away unread."""
        open_ones = (followed.stream.skipped_bytes for followed in self._followed.values())
        return self.skipped_bytes + sum(open_ones)

    def state(self) -> dict[str, Any] | None:
        """Return where to go on after a restart; None while that cannot be said."""
        positions: dict[str, Any] = {}
        for path, followed in self._followed.items():
            position = followed.stream.position(followed.framing.pending_bytes)
            if position is None:
                return None
            positions[str(path)] = [list(position.inode), position.offset, list(position.done)]
        jobs = []
        for job in self.jobs():
            job.sum_up()
            owner = [job.owner.namespace, job.owner.name, job.owner.uid]
            jobs.append([owner, job.last_line, job.last_warning, nccl_state.to_json(job.facts)])
        steps = [
            [[job.owner.namespace, job.owner.name, job.owner.uid], step_state.to_json(job.steps)]
            for job in self._jobs.values()
            if job.steps.spoke
        ]
        return {"version": nccl_state.VERSION, "logs": positions, "jobs": jobs, "steps": steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, before the first rescan.

        Raises:
            rankscope_agent.job_logs.state.StateError: it is not one of this version.
        """
        if state.get("version") != nccl_state.VERSION:
            raise nccl_state.StateError(f"version {state.get('version')!r}")
        try:
            for path, (inode, offset, done) in state["logs"].items():
                self._resume[path] = Position((inode[0], inode[1]), offset, tuple(done))
            for owner, last_line, last_warning, facts in state["jobs"]:
                job = PodLogs(LogOwner(*owner), nccl_state.from_json(facts))
                job.last_line, job.last_warning = last_line, last_warning
                self._jobs[job.owner] = job
            for owner, steps in state.get("steps", ()):
                known = self._job(LogOwner(*owner))
                if known is not None:
                    known.steps = step_state.from_json(steps)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise nccl_state.StateError(f"is damaged: {error!r}") from error

    def close(self) -> None:
        """Close all files."""
        for path in list(self._followed):
            self._end(path)
