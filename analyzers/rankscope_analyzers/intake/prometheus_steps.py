"""Step records from Prometheus: mean times of each rank's steps between two scrapes.

Counters of steps and seconds hold the mean of an interval exactly, whatever happened within it.
Anything shorter than an interval is averaged away; agents' own records show it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rankscope_agent.contract.job_names import is_job_id
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake import job_ownership
from rankscope_analyzers.intake.job_ownership import OwnershipClaim, Source
from rankscope_analyzers.intake.prometheus_api import Matrix, Prometheus, PrometheusError
from rankscope_analyzers.intake.prometheus_instances import Instances
from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.steps.job_records import JobRecords, SourceError

SMALLEST_INTERVAL_SECONDS = 15.0
"""The usual scrape interval; a shorter step repeats values."""

LARGEST_COUNT = 720
"""Intervals requested: 16,384 ranks of seven counters are some 400 MB of JSON each at that
number."""

SETTLED_SECONDS = 5.0
"""Seconds after which a sample is available at the latest: older results do not change."""

COUNTERS: Mapping[str, Metric] = {
    "step_seconds": metrics.STEP_SECONDS,
    "data_seconds": metrics.DATA_SECONDS,
    "compute_seconds": metrics.COMPUTE_SECONDS,
    "sync_seconds": metrics.SYNC_SECONDS,
    "other_seconds": metrics.OTHER_SECONDS,
    "cpu_wait_seconds": metrics.CPU_WAIT_SECONDS,
    "samples": metrics.SAMPLES,
}
"""Columns of the trace contract and the counters whose increase they are."""

STEPS = "steps"
"""The counter that divides all others."""

ALL_INSTANCES = Instances({})

Key = tuple[str, int]
"""Job and number of a rank."""


@dataclass(frozen=True, slots=True)
class _Rank:
    """The last `rankscope_rank_info` of a rank."""

    node: str
    local_rank: int | None
    world_size: int | None
    groups: tuple[int, int, int] | None
    timing_source: str = ""


def from_prometheus(
    server: Prometheus,
    job_id: str | None,
    since_unix_seconds: float,
    now_unix_seconds: float,
    instances: Instances = ALL_INSTANCES,
) -> tuple[JobRecords, ...]:
    """Read jobs' counters and turn them into records, one per rank and interval.

    Intervals begin at multiples of their length, whenever they are requested: a repeated request
    returns the same records, and newer ones.

    Args:
        server: to query.
        job_id: the job to query, None for all.
        since_unix_seconds: beginning of the time that is read.
        now_unix_seconds: its end.
        instances: what is known of the agents that are scraped.

    Raises:
        SourceError: the server cannot be queried, or has no series of such a job.
    """
    length = now_unix_seconds - since_unix_seconds
    interval = max(SMALLEST_INTERVAL_SECONDS, length / LARGEST_COUNT)
    grid = _Grid.between(since_unix_seconds, now_unix_seconds - SETTLED_SECONDS, interval)
    try:
        infos = _infos(server, job_id, length, now_unix_seconds)
        totals = {
            name: _counter(server, metric, job_id, grid)
            for name, metric in {STEPS: metrics.STEPS, **COUNTERS}.items()
        }
    except PrometheusError as error:
        raise SourceError(str(error)) from None
    claims = {_claim(labels, instances) for labels in infos}
    foreign = frozenset(job_ownership.refused(claims))
    notes_on_jobs = job_ownership.notes(foreign, {one.job_id for one in claims - foreign})
    trust = _Trust.of(instances, claims, foreign)
    done = [*_reported(totals.pop(STEPS), trust)]
    newest = _newest(done)
    ranks = _ranks(infos, trust, newest)
    steps = _larger(done)
    columns = {name: _larger(_reported(matrix, trust)) for name, matrix in totals.items()}
    if not steps:
        raise SourceError(_no_steps(server, job_id, length))
    rows = _records(grid, steps, columns, ranks)
    note = (
        f"steps are means over intervals of {interval:.0f} s: what is shorter is averaged away,"
        " single checkpoints and stalls too"
    )
    return tuple(
        JobRecords(
            str(name),
            records,
            _world_size(ranks, newest, str(name)),
            (note, *notes_on_jobs.get(str(name), ())),
            live=True,
        )
        for name, records in rows.groupby("job_id", sort=True)
    )


def _no_steps(server: Prometheus, job_id: str | None, length: float) -> str:
    wanted = f"of job {job_id}" if job_id else "of any job"
    return (
        f"{server.url} has no {metrics.STEPS.name} {wanted} in the last {length / 60:.0f}"
        " minutes: is the agent scraped, and does the job carry the probe?"
    )


@dataclass(frozen=True, slots=True)
class _Grid:
    """Moments at which counters are read: multiples of an interval.

    Args:
        first: number of the first one.
        count: of intervals.
        interval: seconds.
    """

    first: int
    count: int
    interval: float

    @classmethod
    def between(cls, begin: float, end: float, interval: float) -> _Grid:
        """Return the moments from just before `begin` to `end`."""
        first = math.floor(begin / interval)
        return cls(first, max(1, math.floor(end / interval) - first), interval)

    def moment(self, index: int) -> float:
        """Return the Unix time of a moment."""
        return (self.first + index) * self.interval


@dataclass(frozen=True, slots=True)
class _Trust:
    """Whose reports are trusted.

    Args:
        claims: those that are not trusted.
        ranks: those of which every claim of their node is refused.
    """

    instances: Instances
    claims: frozenset[OwnershipClaim]
    ranks: frozenset[Source]

    @classmethod
    def of(
        cls, instances: Instances, claims: set[OwnershipClaim], foreign: frozenset[OwnershipClaim]
    ) -> _Trust:
        """Trust all but foreign claims, and ranks that have no others."""
        own = {one.key for one in claims.difference(foreign)}
        return cls(instances, foreign, frozenset(one.key for one in foreign) - own)

    def has(self, labels: Mapping[str, str]) -> bool:
        """Return True if a series is trusted."""
        if labels.get("instance", "") in self.instances.refused:
            return False
        claim = _claim(labels, self.instances)
        if not is_job_id(claim.job_id) or claim.key in self.ranks:
            return False
        return claim not in self.claims


def _claim(labels: Mapping[str, str], instances: Instances) -> OwnershipClaim:
    """Return who reports on which rank; the source is the node, or an instance without one."""
    instance = labels.get("instance", "")
    return OwnershipClaim(
        instances.nodes.get(instance, instance),
        labels.get("job_id", ""),
        labels.get("rank", ""),
        labels.get("pod_namespace", ""),
        bool(labels.get("pod_uid")),
    )


def _counter(server: Prometheus, metric: Metric, job_id: str | None, grid: _Grid) -> Matrix:
    """Fetch a counter of each rank, as each agent reports it."""
    query = f"max by (instance, job_id, rank) ({metric.name}{_selector(job_id)})"
    beyond = grid.interval / 4  # of the last moment, which rounding must not cut off
    return server.range(query, grid.moment(0), grid.moment(grid.count) + beyond, grid.interval)


def _selector(job_id: str | None) -> str:
    # PromQL's strings have the escapes of Go, which include those of JSON.
    return "" if job_id is None else "{job_id=" + json.dumps(job_id) + "}"


def _infos(
    server: Prometheus, job_id: str | None, length: float, now: float
) -> Sequence[Mapping[str, str]]:
    """Return the labels of all ranks of that time, those that agents report still at the end."""
    name = f"{metrics.RANK_INFO.name}{_selector(job_id)}"
    every = f"last_over_time({name}[{max(1, int(length))}s])"
    return [labels for query in (every, name) for labels, _ in server.instant(query, now)]


def _ranks(
    infos: Sequence[Mapping[str, str]], trust: _Trust, newest: Mapping[Key, _Newest]
) -> Mapping[Key, _Rank]:
    """Return what is known of each rank, of several agents by the one with its newest steps."""
    found: dict[Key, _Rank] = {}
    for labels in infos:
        key = _key(labels)
        if key is not None and trust.has(labels):
            reporter = newest[key].instance if key in newest else ""
            if key in found and labels.get("instance", "") != reporter:
                continue
            groups = [_number(labels.get(n)) for n in ("dp_group", "tp_group", "pp_stage")]
            dp_group, tp_group, pp_stage = groups
            known = dp_group is not None and tp_group is not None and pp_stage is not None
            found[key] = _Rank(
                node=labels.get("node", ""),
                local_rank=_number(labels.get("local_rank")),
                world_size=_number(labels.get("world_size")),
                groups=(dp_group or 0, tp_group or 0, pp_stage or 0) if known else None,
                timing_source=labels.get("timing_source", ""),
            )
    return found


def _records(
    grid: _Grid,
    steps: Mapping[Key, Floats],
    columns: Mapping[str, Mapping[Key, Floats]],
    ranks: Mapping[Key, _Rank],
) -> pd.DataFrame:
    """Divide the increase of seconds by that of steps, for every interval in which steps ended."""
    parts = []
    for key, done in steps.items():
        usable = done > 0
        if not usable.any():
            continue
        rank = ranks.get(key, _Rank("", None, None, None))
        dp_group, tp_group, pp_stage = rank.groups or (0, key[1], 0)
        part = {
            "job_id": key[0],
            "rank": key[1],
            "step": grid.first + np.flatnonzero(usable),
            "steps": done[usable],
            "t_start_unix_seconds": (grid.first + np.flatnonzero(usable)) * grid.interval,
            "node": rank.node,
            "gpu": -1 if rank.local_rank is None else rank.local_rank,
            "dp_group": dp_group,
            "tp_group": tp_group,
            "pp_stage": pp_stage,
            "timing_source": rank.timing_source,
        }
        for name, series in columns.items():
            part[name] = _means(series.get(key), done, usable)
        parts.append(pd.DataFrame(part))
    empty = pd.DataFrame({"job_id": pd.Series(dtype=str)})
    return pd.concat(parts, ignore_index=True) if parts else empty


def _means(spent: Floats | None, done: Floats, usable: Booleans) -> Floats:
    """Return seconds per step of the usable intervals; NaN if they were not measured."""
    if spent is None:
        return np.full(int(usable.sum()), np.nan)
    return np.asarray(spent[usable] / done[usable])


def _increase(totals: Floats) -> Floats:
    """Return the increase of a counter in each interval; NaN over gaps and resets."""
    difference = np.diff(totals)
    return np.where(difference >= 0, difference, np.nan)


@dataclass(frozen=True, slots=True)
class _Reported:
    """The increases of a rank's counter in each interval, as one agent reports them."""

    key: Key
    instance: str
    increases: Floats


def _reported(matrix: Matrix, trust: _Trust) -> Iterator[_Reported]:
    for labels, row in zip(matrix.labels, matrix.values, strict=True):
        key = _key(labels)
        if key is not None and trust.has(labels):
            yield _Reported(key, labels.get("instance", ""), _increase(row))


def _larger(reported: Iterable[_Reported]) -> Mapping[Key, Floats]:
    """Return increases by rank; if two agents report a rank, the larger ones.

    One of them may be of the node on which the rank was before, whose counters stand still.
    """
    found: dict[Key, Floats] = {}
    for one in reported:
        known = found.get(one.key)
        found[one.key] = one.increases if known is None else np.fmax(known, one.increases)
    return found


@dataclass(frozen=True, slots=True, order=True)
class _Newest:
    """The newest interval in which a rank ended steps, -1 for none, and the agent that counted."""

    interval: int
    instance: str


def _newest(reported: Iterable[_Reported]) -> Mapping[Key, _Newest]:
    found: dict[Key, _Newest] = {}
    for one in reported:
        ended = np.flatnonzero(one.increases > 0)
        newest = _Newest(int(ended[-1]) if len(ended) else -1, one.instance)
        found[one.key] = max(found.get(one.key, newest), newest)
    return found


def _key(labels: Mapping[str, str]) -> Key | None:
    rank = _number(labels.get("rank"))
    return None if rank is None else (labels.get("job_id", ""), rank)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 8 else None


def _world_size(
    ranks: Mapping[Key, _Rank], newest: Mapping[Key, _Newest], job_id: str
) -> int | None:
    """Return the size that the ranks with the newest steps report: a job may have shrunk."""
    sizes = [
        (newest[key].interval if key in newest else -1, rank.world_size)
        for key, rank in ranks.items()
        if key[0] == job_id and rank.world_size
    ]
    return max(sizes, default=(-1, None))[1]
