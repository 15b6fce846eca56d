"""How far each rank of a job is, by its agent's newest page and clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from rankscope_agent.contract.metrics import agent, pods, starvation, training
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.rank_holders import TOGETHER_SECONDS
from rankscope_analyzers.layers.rank_locations import by_rank, of_ranks

FRESH_SECONDS = 120.0
"""An older page shows nothing about now: two of the longest scrape intervals in use for
training."""

BOOT_SECONDS = 1.0
"""Starts of processes count from the moment of boot, which the kernel reports in whole seconds."""

NOTICED_SECONDS = 2.0
"""How much later than a process ends its agent may notice it, as launchers start the next at once.
No process that makes a ring, which takes importing torch, lives that short."""


def is_another(started: float, last: float | None, ended: float | None) -> bool:
    """Return True if a process was started after the one that had the rank's ring.

    Args:
        started: Unix time at which the process was started.
        last: when the ring's newest step ended, None without any.
        ended: when the process that had the ring was seen to have ended, None if unknown.
    """
    if last is not None:
        return started + BOOT_SECONDS > last
    return ended is None or started + BOOT_SECONDS + NOTICED_SECONDS > ended


@dataclass(frozen=True, slots=True)
class Progress:
    """One rank of a job; times are by the clock of its node.

    Args:
        now_unix_seconds: when its agent's page was made.
        read_unix_seconds: when that page was read, by our clock.
        dated: True if the agent dated the page; otherwise it is when the page was read.
        known: True if it has a ring.
        alive: True if its process lives and has the ring open.
        last_unix_seconds: when its newest step ended, None without any in its process's life.
        step: number of that step.
        started_unix_seconds: when its process was started, None if no process is seen.
        ended_unix_seconds: when the process that had its ring ended, None if unknown.
        stopped: True if a signal has stopped the process.
        stepped_before: True if one of its processes made a step, however long ago.
    """

    rank: int
    node: str
    now_unix_seconds: float
    read_unix_seconds: float
    dated: bool
    known: bool
    alive: bool
    last_unix_seconds: float | None
    step: float | None
    started_unix_seconds: float | None
    ended_unix_seconds: float | None
    stopped: bool
    stepped_before: bool

    @property
    def quiet(self) -> float | None:
        """Return seconds since its newest step, None if it has made none."""
        last = self.last_unix_seconds
        return None if last is None else max(0.0, self.now_unix_seconds - last)

    @property
    def starting(self) -> bool:
        """Return True if its process lives and has made no step so far."""
        started = self.started_unix_seconds
        if started is None or (self.alive and self.last_unix_seconds is not None):
            return False
        return is_another(started, self.last_unix_seconds, self.ended_unix_seconds)


def read(observed: Observed, job_id: str, now: float | None) -> list[Progress]:
    """Return the ranks of a job whose agents report the present, by rank.

    Args:
        observed: pages.
        job_id: the job.
        now: Unix seconds at which the report is made, None if pages are as new as possible.
    """
    shown = (observed.of(metric, job_id=job_id) for metric in _SHOW_A_PROCESS)
    known = of_ranks(observed, job_id, chain.from_iterable(shown))
    newest = max((float(one.times[-1]) for one in known.values()), default=0.0)
    if now is not None and now - newest > FRESH_SECONDS:
        return []
    there = {r: one for r, one in known.items() if newest - one.times[-1] <= TOGETHER_SECONDS}
    made = {one.node: one for one in observed.of(agent.SNAPSHOT_TIMESTAMP)}
    tables = {metric.name: by_rank(observed, metric, job_id) for metric in _OF_RANKS}
    return [_progress(rank, there[rank], made, tables) for rank in sorted(there)]


_SHOW_A_PROCESS = (pods.RANK_STARTED, training.RANK_ALIVE)

_OF_RANKS = (
    training.RANK_ALIVE,
    training.RANK_ENDED,
    training.STEPS,
    training.LAST_STEP,
    training.LAST_STEP_TIMESTAMP,
    starvation.RANK_STOPPED,
    pods.RANK_STARTED,
)


def _progress(
    rank: int,
    there: Series,
    made: Mapping[str, Series],
    tables: Mapping[str, Mapping[int, Series]],
) -> Progress:
    moment = float(there.times[-1])
    timestamp = made.get(there.node)

    def newest(name: str, *, anywhere: bool = False) -> float | None:
        series = tables[name].get(rank)
        # A series that newer pages lack is over: its last value says nothing about now.
        if series is None or series.times[-1] < moment:
            return None
        # Nor does that of a process on another node, where the rank was before.
        return series.last if anywhere or series.node == there.node else None

    alive = newest(training.RANK_ALIVE.name)
    return Progress(
        rank=rank,
        node=there.node,
        now_unix_seconds=moment if timestamp is None else timestamp.last,
        read_unix_seconds=moment,
        dated=timestamp is not None,
        known=alive is not None,
        alive=alive == 1,
        last_unix_seconds=newest(training.LAST_STEP_TIMESTAMP.name),
        step=newest(training.LAST_STEP.name),
        started_unix_seconds=newest(pods.RANK_STARTED.name),
        ended_unix_seconds=newest(training.RANK_ENDED.name),
        stopped=newest(starvation.RANK_STOPPED.name) == 1,
        stepped_before=(newest(training.STEPS.name, anywhere=True) or 0.0) > 0,
    )
