"""Fetches the series that GPU errors are derived from, from Prometheus or from agents' pages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import numpy as np

from rankscope_agent.contract.metrics import agent, kernel_log
from rankscope_analyzers.gpus import driver_xids
from rankscope_analyzers.gpus.errors import COUNTERS, HOLDERS, READS, GpuError, errors
from rankscope_analyzers.gpus.failure_kinds import NODE_KINDS
from rankscope_analyzers.intake import page_history
from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.intake.page_history import Page
from rankscope_analyzers.intake.prometheus_api import Matrix, Prometheus
from rankscope_analyzers.intake.prometheus_series import series_of_nodes

SMALLEST_INTERVAL_SECONDS = 15.0
"""The usual scrape interval; a shorter step repeats values."""

LARGEST_COUNT = 720
"""Readings requested: two minutes apart over a day; counters miss nothing in between."""

UUIDS_AT_ONCE = 100
"""GPUs named in one query: some 4 KB of it."""

SECONDS_PER_HOUR = 3600.0

STAMPS = tuple(dict.fromkeys(metric.name for metric, _ in COUNTERS.values()))
WATCHED = kernel_log.GPU_FALLEN.name
"""Has a series for each GPU whose node's kernel log is read, with or without events."""

LOGGED = (kernel_log.KERNEL_EVENTS, kernel_log.XID_ERRORS, kernel_log.SXID_ERRORS)
"""At least the first of these is on the page of every agent that reads its node's kernel log."""

LATE_SECONDS = 300.0
"""How long Prometheus returns a value after it was scraped (--query.lookback-delta): what is older
than that has stopped."""

_OF_LOG = frozenset(metric.name for metric in LOGGED)

OF_NODES = (agent.BUILD_INFO.name, *(kind.counter.name for kind in NODE_KINDS))


@dataclass(frozen=True, slots=True)
class ErrorLog:
    """Errors over a time.

    Args:
        gpu_hours: time over which errors would have been seen, of all GPUs together; None if
            unknown.
        nodes: counters of failures of nodes, and for each node a series that shows since when it is
            known; None if only single pages were read, which do not show it.
        jobs: whose ranks were seen; None if that was not read.
        any_read: whether the kernel log of any node with GPUs was read.
        unread: nodes whose agent reads no kernel log now.
        gone: nodes of whose agent Prometheus has had nothing lately.
    """

    errors: tuple[GpuError, ...]
    since_unix_seconds: float
    until_unix_seconds: float
    gpu_hours: float | None
    nodes: tuple[Series, ...] | None = None
    jobs: frozenset[str] | None = None
    any_read: bool = True
    unread: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def from_pages(pages: Sequence[Page], since_unix_seconds: float) -> ErrorLog:
    """Return the errors on agents' pages; a page has the time of the last one, not the first."""
    shown = page_history.from_pages(pages, (*READS, *LOGGED, *driver_xids.READS))
    read = {one.node for one in shown.all() if one.name in _OF_LOG}
    unread = sorted({page.node for page in pages} - read)
    series = driver_xids.merge(shown.all())
    until = max((page.time for page in pages), default=since_unix_seconds)
    jobs = {one.labels.get("job_id", "") for one in series if one.name in HOLDERS}
    found = errors(series, since_unix_seconds)
    return ErrorLog(
        found,
        since_unix_seconds,
        until,
        None,
        jobs=frozenset(jobs),
        any_read=bool(read),
        unread=tuple(unread),
    )


def has_job(
    server: Prometheus, job_id: str, since_unix_seconds: float, now_unix_seconds: float
) -> bool:
    """Return True if ranks or GPUs of a job were scraped.

    Raises:
        PrometheusError: the server cannot be queried.
    """
    seconds = max(1, math.ceil(now_unix_seconds - since_unix_seconds))
    own = f"{{job_id={json.dumps(job_id)}}}[{seconds}s]"
    at = (now_unix_seconds, now_unix_seconds, 1.0)
    return any(len(server.range(f"last_over_time({name}{own})", *at).values) for name in HOLDERS)


def from_prometheus(
    server: Prometheus, since_unix_seconds: float, now_unix_seconds: float
) -> ErrorLog:
    """Return what was scraped.

    Raises:
        PrometheusError: the server cannot be queried.
    """
    length = now_unix_seconds - since_unix_seconds
    count = min(LARGEST_COUNT, max(1, int(length / SMALLEST_INTERVAL_SECONDS)))
    interval = length / count
    # One more reading before the period shows what had been counted when it began.
    grid = (since_unix_seconds - interval, now_unix_seconds, interval)
    series = driver_xids.merge(
        one
        for name in (*COUNTERS, *STAMPS, *(metric.name for metric in driver_xids.READS))
        for one in _readings(name, _newest(server, name, grid))
    )
    uuids = sorted({one.labels.get("uuid", "") for one in series if one.name in COUNTERS} - {""})
    failed = sorted({error.uuid for error in errors(series, since_unix_seconds)} & set(uuids))
    for first in range(0, len(failed), UUIDS_AT_ONCE):
        wanted = _any_of(failed[first : first + UUIDS_AT_ONCE])
        for name in HOLDERS:
            series += _readings(name, _newest(server, f"{name}{{uuid=~{wanted}}}", grid))
    watched = server.range(_watched(interval), *grid)
    # Each reading stands for the interval before it: the first two are of before this time.
    hours = float(np.nansum(watched.values[:, 2:])) * interval / SECONDS_PER_HOUR
    found = errors(series, since_unix_seconds)
    nodes = tuple(one for name in OF_NODES for one in _readings(name, _newest(server, name, grid)))
    known = hours if hours > 0 else None
    times = since_unix_seconds, now_unix_seconds
    logged = list(_readings(kernel_log.KERNEL_EVENTS.name, server.range(_logged(interval), *grid)))
    unread, gone = _blind(nodes, logged, now_unix_seconds)
    read = known is not None
    return ErrorLog(found, *times, known, nodes, any_read=read, unread=unread, gone=gone)


def _blind(
    nodes: Sequence[Series], logged: Sequence[Series], now_unix_seconds: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nodes whose kernel log is not read now, and those that are not scraped now."""
    read = _newest_times(logged)
    agents = _newest_times(one for one in nodes if one.name == agent.BUILD_INFO.name)
    gone = sorted(one for one, last in agents.items() if last < now_unix_seconds - LATE_SECONDS)
    unread = (one for one, last in agents.items() if read.get(one, 0.0) < last - LATE_SECONDS)
    return tuple(sorted(unread)), tuple(gone)


def _newest(server: Prometheus, selector: str, grid: tuple[float, float, float]) -> Matrix:
    """Fetch the newest value in each interval, including series that end within it."""
    return server.range(f"last_over_time({selector}[{math.ceil(grid[2])}s])", *grid)


def _watched(interval: float) -> str:
    """Return the query for the number of GPUs in each interval, those of replaced agents once."""
    labels = ", ".join(kernel_log.GPU_FALLEN.labels)
    by_node, by_target = (
        f"count by (cluster, {of}, {labels})"
        f" (last_over_time({WATCHED}{{{chosen}}}[{math.ceil(interval)}s]))"
        for of, chosen in (("node", 'node!=""'), ("instance", 'node=""'))
    )
    return f"count({by_node} or {by_target})"


def _newest_times(series: Iterable[Series]) -> Mapping[str, float]:
    """Return the Unix time of the newest of these series' readings by node."""
    newest: dict[str, float] = {}
    for one in series:
        newest[one.node] = max(float(one.times[-1]), newest.get(one.node, 0.0))
    return newest


def _logged(interval: float) -> str:
    """Return the query for the intervals in which each node's kernel log was read."""
    name = kernel_log.KERNEL_EVENTS.name
    return f"group by (cluster, node, instance) (last_over_time({name}[{math.ceil(interval)}s]))"


def _any_of(uuids: Iterable[str]) -> str:
    """Return a matcher for GPUs; the uuid of a shared GPU continues with `::`."""
    # PromQL's strings have the escapes of Go, which include those of JSON.
    return json.dumps(f"({'|'.join(re.escape(uuid) for uuid in uuids)})(::.*)?")


def _readings(name: str, matrix: Matrix) -> Iterator[Series]:
    """Yield the series of each node."""
    finite = np.where(np.isfinite(matrix.values), matrix.values, np.nan)
    return series_of_nodes([replace(matrix, values=finite)], _node, name)


def _node(labels: Mapping[str, str]) -> str:
    return labels.get("node") or _host(labels.get("instance", ""))


def _host(instance: str) -> str:
    """Return the host of `host:port`."""
    return urlsplit(f"//{instance}").hostname or instance
