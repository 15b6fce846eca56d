"""The jobs of a fleet of agents whose step records are followed; reports cover all or some."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rankscope_agent.contract.shards import WHOLE, Shard
from rankscope_analyzers.fusion.gather import Gathered, PageLook, with_steps
from rankscope_analyzers.intake import left_out, readable_rows
from rankscope_analyzers.intake.agent_client import Agent
from rankscope_analyzers.intake.cluster import NodeAgents
from rankscope_analyzers.intake.collective_windows import (
    length_of_windows,
    unread,
    windows_by_job,
)
from rankscope_analyzers.intake.credentials import Entry
from rankscope_analyzers.intake.left_out import LeftOut
from rankscope_analyzers.intake.step_history import table
from rankscope_analyzers.intake.step_stream import StepStream, StreamLook
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.steps.beside_steps import BesideSteps
from rankscope_analyzers.steps.job_records import JobRecords, Read
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import MAXIMUM_RANK, RecordError
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.stragglers.judging_shares import Fresh
from rankscope_analyzers.stragglers.streamed_timing import StreamedTiming
from rankscope_analyzers.text.name_lists import shortened

FIRST_SECONDS = 15.0
"""How long a job that is seen for the first time waits for agents that have not answered yet: its
start is the baseline that it is compared with later."""

READING_SECONDS = 60.0
"""The same while many agents have not been queried yet, each of which may belong to the job, and
after a pause between two looks in which no late response was read: the first evaluation of a large
fleet takes half a minute, and so does reading it."""


@dataclass(frozen=True, slots=True)
class _Dropped:
    """Records of a job that were not judged, and when the last ones arrived."""

    count: int
    last: float


@dataclass(frozen=True, slots=True)
class News:
    """What the new records of all jobs show.

    Args:
        changed: jobs with something to report.
        unchanged: jobs that are still as they were reported.
        errors: of jobs whose records made an analyzer raise.
    """

    changed: Sequence[str]
    unchanged: Sequence[str]
    errors: Sequence[AnalysisError]


class StreamedFleet:
    """Follows the step records of many agents; used by one thread.

    Args:
        entry: credentials.
        seconds: how long records are kept for reports.
        comparison_seconds: time that a look at all jobs may spend on comparing collectives.
        followed: the state of jobs.
        cautious: True if agents that fall silent are not queried again before they are listed
            again.
        shard: the jobs to follow.

    Attributes:
        dropped: number of records of all jobs that were not judged.
    """

    def __init__(
        self,
        entry: Entry,
        seconds: float,
        comparison_seconds: float,
        followed: FollowedJobs,
        *,
        cautious: bool = False,
        shard: Shard = WHOLE,
    ) -> None:
        self._entry = entry
        self.seconds = seconds
        self._comparison_seconds = comparison_seconds
        self.stream = StepStream(entry, seconds, cautious=cautious, shard=shard)
        self.timing = StreamedTiming(followed)
        self._first_seen: dict[str, float] = {}
        self._of_start: frozenset[str] = frozenset()
        self._pause = 0.0
        self._urls: Sequence[str] = ()
        self._blind: frozenset[str] = frozenset()
        self._looked_at = time.monotonic()
        self._dropped: dict[str, _Dropped] = {}
        self.dropped = 0

    def set_agents(self, urls: Sequence[str], cluster: NodeAgents | None) -> None:
        """Follow these agents from now on.

        Args:
            urls: of all of them.
            cluster: the same agents as the API server lists them, by node.
        """
        self._urls = tuple(dict.fromkeys(urls))
        self.stream.renew()
        self.stream.placed = {} if cluster is None else cluster.nodes

    def look(self, now: float, wait_seconds: float) -> StreamLook:
        """Query all agents for new records.

        Raises:
            rankscope_analyzers.intake.credentials.CredentialsError: a file cannot be used.
        """
        reading = self.stream.has_newcomers  # more than are queried in one look
        found = self.stream.look(self._urls, now, wait_seconds)
        jobs = self.stream.windows.jobs
        for name in jobs:
            self._first_seen.setdefault(name, now)
        for known in (self._first_seen, self.stream.starts):
            for name in [one for one in known if one not in jobs]:
                del known[name]
        new = {name for name in jobs if not self.timing.followed.knows(name)}
        self._of_start = frozenset(new if reading else new & self._of_start)
        self._drop_too_many(now)
        return found

    def _drop_too_many(self, now: float) -> None:
        """Drop records of jobs that have more of them than there is time for."""
        before, self._looked_at = self._looked_at, time.monotonic()
        self._pause = self._looked_at - before
        windows = self.stream.windows.jobs
        followed: dict[str, Fresh] = {}
        new: dict[str, Fresh] = {}
        for name, window in windows.items():
            known = followed if self.timing.followed.knows(name) else new
            known[name] = Fresh(window.fresh, window.fresh_steps())
        cut = self.timing.shares.too_many(
            followed,
            new,
            self._pause,
            starting=bool(self._of_start),
        )
        for name, most in cut.items():
            count = windows[name].drop_fresh(most.records, most.steps)
            self.dropped += count
            earlier = self._dropped.get(name)
            self._dropped[name] = _Dropped(count + (earlier.count if earlier else 0), now)
        self._dropped = {
            name: one for name, one in self._dropped.items() if one.last >= now - self.seconds
        }

    def news(self, now: float) -> News:
        """Judge the new records of all jobs.

        Args:
            now: Unix time.
        """
        found = {
            name: attempt("timing", name, partial(self._has_news, name))
            for name in self._ready(now)
        }
        return News(
            [name for name, one in found.items() if one is True],
            [name for name, one in found.items() if one is False],
            [one for one in found.values() if isinstance(one, AnalysisError)],
        )

    def _ready(self, now: float) -> Sequence[str]:
        """Return the jobs that can be judged: not those with ranks that may answer in a moment."""
        whole = self._whole_jobs()
        return [
            name
            for name in self.stream.windows.jobs
            if self.timing.followed.knows(name) or name in whole or self._has_waited(name, now)
        ]

    def _has_waited(self, name: str, now: float) -> bool:
        """Return True if a new job has waited long enough for ranks that are missing."""
        reading = self.stream.has_newcomers or self._pause > FIRST_SECONDS
        patience = READING_SECONDS if reading else FIRST_SECONDS
        return now - self._first_seen[name] >= patience

    def _has_news(self, name: str) -> bool | None:
        """Return True if a job has something to report, None if no new record is conclusive."""
        window = self.stream.windows.of(name)
        if name in self._blind or not window.fresh:
            return None  # without sync times a job is judged by its windows of collectives
        if not self.timing.followed.knows(name):
            return True
        fresh = window.fresh_table()
        window.taken()
        layout = Layout(fresh.rank_count, 1, 1, 0, wall=True, by_groups=True)
        try:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                return self.timing.has_news(name, fresh, layout)
        except RecordError:
            return True

    def _whole_jobs(self) -> frozenset[str]:
        """Return the jobs that are seen for the first time and whose ranks are all present."""
        new = [name for name in self.stream.windows.jobs if not self.timing.followed.knows(name)]
        if not new:
            return frozenset()
        ranks: dict[str, set[int]] = defaultdict(set)
        for agent in self.stream.agents.values():
            for ring in agent.rings:
                ranks[ring.job_id].add(ring.rank["rank"])
        sizes = self._sizes()
        return frozenset(name for name in new if len(ranks[name]) >= sizes.get(name, MAXIMUM_RANK))

    def gathered(self, look: PageLook, oldest: float, names: Sequence[str] | None) -> Gathered:
        """Return the records of jobs, and what pages show of their nodes.

        Args:
            look: at pages, the last one.
            oldest: Unix time of the oldest windows of collectives that are of interest.
            names: of the jobs, None for all; these jobs are also searched for sync times.
        """
        failures = self.stream.failures
        notes = (shortened(failures),) if failures else ()
        windows: Mapping[Any, Sequence[Mapping[str, Any]]] = {}
        blind, length = self._blind_agents()
        if names is None:
            windows = windows_by_job(
                [Agent(url, self._entry) for url in blind], None, oldest, length, self, self.stream
            )
            self._blind = frozenset(map(str, windows))
            self.timing.followed.start_poll()
            self.timing.keep(self.stream.windows.jobs)
        sizes, missing = self._sizes(), left_out.notes(self._left_out(), None)
        chosen = self._ready(time.time()) if names is None else names
        unreadable = self.stream.unread
        missing = {
            name: (*missing.get(name, ()), *readable_rows.sentences(unreadable, name))
            for name in chosen
        }
        jobs = tuple(
            replace(
                self._job(
                    *(name, sizes.get(name), notes, windows.get(name, ())),
                    *((len(blind), length), missing),
                ),
                beside=self._saves(look, name),
            )
            for name in sorted(chosen)
        )
        if names is not None:
            nodes = {str(node) for job in jobs for node in job.records["node"].unique()}
            evidence = look.evidence
            look = replace(
                look, evidence=replace(evidence, observed=evidence.observed.on(nodes)), errors=()
            )
        return with_steps(look, Read(jobs, notes), failures)

    def newest(self, url: str) -> Mapping[str, float]:
        """Return when the newest step of each ring of an agent began."""
        agent = self.stream.agents.get(url)
        return agent.newest if agent else {}

    def _job(
        self,
        name: str,
        size: int | None,
        failures: Sequence[str],
        windows: Sequence[Mapping[str, Any]],
        blind: tuple[int, float],
        missing: Mapping[str, Sequence[str]],
    ) -> JobRecords:
        window = self.stream.windows.of(name)
        records = window.records()
        self.timing.offer(name, records, window.fresh)
        window.taken()
        start = table(self.stream.starts.pop(name, []))
        return JobRecords(
            name,
            records,
            size,
            (
                *failures,
                *self.stream.notes.get(name, ()),
                *missing.get(name, ()),
                *self._too_many(name),
                *unread(records, *blind),
            ),
            live=True,
            windows=tuple(windows),
            start=start if len(start) else None,
        )

    def _saves(self, look: PageLook, name: str) -> tuple[BesideSteps, ...]:
        """Return what ranks of a job saved outside of steps, without those that are not trusted."""
        return tuple(
            save
            for url, save in look.saves.get(name, ())
            if not self.stream.has(url, {"job_id": name, "rank": save.rank})
        )

    def _too_many(self, name: str) -> Iterator[str]:
        if name in self._dropped:
            yield (
                f"{self._dropped[name].count:,} step records were not judged: there were more than"
                " one job has a share of the time for"
            )

    def _left_out(self) -> Iterator[LeftOut]:
        """Yield notes on records that agents had no space for, as long as those would be kept."""
        oldest = time.time() - self.seconds
        for agent in self.stream.agents.values():
            yield {rank: until for rank, until in agent.left_out.items() if until >= oldest}

    def _blind_agents(self) -> tuple[Sequence[str], float]:
        """Return the agents without sync times, and for how long their windows are compared."""
        blind = [url for url, agent in self.stream.agents.items() if agent.blind]
        return blind, length_of_windows(len(blind), self._comparison_seconds)

    def _sizes(self) -> Mapping[str, int]:
        """Return the size of each job by its living ranks, or by those that ended last."""
        alive: dict[str, set[int]] = defaultdict(set)
        ended: dict[str, tuple[float, int]] = {}
        for job_id, size, living, newest in self._reported_sizes():
            if living:
                alive[job_id].add(size)
            ended[job_id] = max(ended.get(job_id, (-1.0, 0)), (newest, size))
        return {name: max(alive.get(name) or {size}) for name, (_, size) in ended.items()}

    def _reported_sizes(self) -> Iterator[tuple[str, int, bool, float]]:
        for agent in self.stream.agents.values():
            for ring in agent.rings:
                size = ring.rank.get("world_size")
                if type(size) is int and 0 < size <= MAXIMUM_RANK + 1:
                    living = bool(ring.rank.get("alive"))
                    yield ring.job_id, size, living, agent.newest.get(ring.name, 0.0)
