"""Lagging collectives and missing ranks, as reported by NCCL's RAS.

RAS is part of every NCCL from 2.24.3 on and listens on localhost:28028. A query makes it gather the
state of all ranks of the job, on all nodes, so it is queried rarely and only if configured.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.contract.metrics import nccl_ras as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.nccl_ras import json_reply, text_reply
from rankscope_agent.sources.nccl_ras.client import RasError, Reply, ReplyTooLargeError, ask
from rankscope_agent.sources.nccl_ras.report import Lag, RasReplyError, RasReport

QUERY_SECONDS = 5.0
"""Time allowed for a query: NCCL's own client waits as long for the collection."""

DEADLINE_SHARE = 0.5
"""Maximum share of a collector's deadline that a query may take, so that the deadline is met."""

_VERSION = re.compile(r"\d{1,2}\.\d{1,3}\.\d{1,3}")


def create(config: Config) -> NcclRasCollector:
    """Create the collector of RAS reports."""
    seconds = min(QUERY_SECONDS, DEADLINE_SHARE * config.deadline_seconds)
    address = config.ras_address
    return NcclRasCollector(address, config.ras_interval_seconds, seconds, time.time)


class NcclRasCollector:
    """Queries RAS once per interval and repeats its answer until the next.

    Args:
        address: where RAS listens; None if it is not to be queried.
        interval: seconds between two queries.
        seconds: time limit for one query.
        clock: returns the Unix time in seconds.
    """

    def __init__(
        self,
        address: ListenAddress | None,
        interval: float,
        seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._address = address
        self._interval = interval
        self._seconds = seconds
        self._clock = clock
        self._format = "json"
        self._asked = float("-inf")
        self._outcome: tuple[Sample, ...] | NoData | RasError = ()

    def collect(self) -> Iterable[Sample]:
        """Return the last answer of RAS.

        Raises:
            NoData: it is not to be queried, or nothing answers there.
            RasError: the answer is not from RAS, or exceeds the size limit.
        """
        if self._address is None:
            raise NoData("RAS is not queried; enable it with --nccl.ras-address localhost:28028")
        now = self._clock()
        if not 0 <= now - self._asked < self._interval:
            self._asked = now
            self._outcome = self._ask(self._address)
        if isinstance(self._outcome, Exception):
            raise self._outcome.with_traceback(None)  # which would grow each time it is raised
        return self._outcome

    def _ask(self, address: ListenAddress) -> tuple[Sample, ...] | NoData | RasError:
        where = f"{address.host}:{address.port}"
        begin = time.monotonic()
        try:
            reply = ask(address.host, address.port, self._seconds, self._format)
            report = _read(reply)
        except TimeoutError:
            return RasError(f"{where} does not report within {self._seconds:g} s")
        except OSError as error:
            return NoData(f"no RAS on {where}: {error.strerror or error}")
        except ReplyTooLargeError as error:
            self._format = "text"
            return RasError(f"{where} {error}; the next query requests the short format")
        except (RasError, RasReplyError) as error:
            return RasError(f"{where} {error}")
        taken = time.monotonic() - begin
        return (
            *ras_samples(report),
            metrics.RAS_QUERY_SECONDS.sample(taken),
            metrics.RAS_LAST_QUERY.sample(self._asked),
        )


def _read(reply: Reply) -> RasReport:
    parse = json_reply.parse if reply.format == "json" else text_reply.parse
    return parse(reply.text)


def ras_samples(report: RasReport) -> Iterator[Sample]:
    """Yield the series of a report."""
    known = _VERSION.match(report.version)
    yield metrics.RAS_INFO.sample(1, version=known[0] if known else "unknown")
    yield metrics.RAS_COMMUNICATORS.sample(report.communicators)
    yield metrics.RAS_RANKS.sample(report.largest)
    yield metrics.RAS_MISSING_RANKS.sample(report.missing_ranks)
    yield metrics.RAS_DEAD_PROCESSES.sample(report.dead_processes)
    if report.failed_ranks is not None:
        yield metrics.RAS_FAILED_RANKS.sample(report.failed_ranks)
    yield metrics.RAS_TIMEOUTS.sample(report.timeouts)
    for lag in report.lags:
        yield metrics.RAS_LAG.sample(lag.operations, op=lag.operation)
    if report.lags:
        yield from _last_ones(report.lags[0], report.largest)


def _last_ones(lag: Lag, largest: int) -> Iterator[Sample]:
    """Yield who is last, where its number is that of its job and not of a small group."""
    if lag.size == largest:
        yield metrics.RAS_LAGGING_RANKS.sample(lag.count)
        if lag.ranks:
            yield metrics.RAS_LAGGING_RANK.sample(lag.ranks[0])
