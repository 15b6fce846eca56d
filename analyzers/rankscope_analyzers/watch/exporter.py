"""Exposes the series of the watch through prometheus_client."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from rankscope_agent.contract.model import HistogramValue, Sample
from rankscope_agent.contract.shards import WHOLE, Shard
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.isolation.boundary import AnalysisError
from rankscope_analyzers.watch.incident_history import Event
from rankscope_analyzers.watch.leadership import Leadership, SingleInstance
from rankscope_analyzers.watch.series import WatchSeries

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
FAMILIES: Mapping[str, type[Family]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class FindingsExporter(Collector):
    """Serves the series of findings and those about the last evaluation.

    Args:
        leadership: findings are served only while this watch leads.
        more: yields further series, which do not depend on agents' responses.
        shard: of the jobs that are judged.
    """

    def __init__(
        self,
        leadership: Leadership | None = None,
        more: Callable[[], Iterable[Sample]] = tuple,
        shard: Shard = WHOLE,
    ) -> None:
        self._leadership = leadership or SingleInstance()
        self._more = more
        self._shard = shard
        self._series = WatchSeries(shard)
        self._extra: tuple[Sample, ...] = ()
        self._lock = threading.Lock()  # scrapes run in their own threads
        self._evaluated = threading.Event()
        self._deadline = math.inf
        self._failed = False

    @property
    def failed(self) -> bool:
        """Return True if the newest evaluation failed altogether."""
        return self._failed

    @property
    def evaluated(self) -> bool:
        """Return True if an evaluation has ended, successfully or not."""
        return self._evaluated.is_set()

    def set_deadline(self, seconds: float) -> None:
        """Start a cycle; set within how many seconds the next one must start."""
        self._deadline = time.monotonic() + seconds

    @property
    def overdue(self) -> bool:
        """Return True if the next cycle is overdue: the evaluation hangs."""
        return time.monotonic() > self._deadline

    def update(
        self,
        reports: Sequence[JobReport],
        now: float,
        unusable: int,
        extra: Sequence[Sample],
        answered: Collection[str] | None = (),
    ) -> tuple[AnalysisError, ...]:
        """Replace the reports with those of a new evaluation.

        Args:
            reports: one for each job.
            now: Unix time of the evaluation.
            unusable: number of jobs whose records could not be judged.
            extra: series about the evaluation itself.
            answered: nodes whose agents answered; None if only some jobs were evaluated.

        Returns:
            The errors of jobs whose reports could not be turned into series.
        """
        with self._lock:
            self._series.note_failures(unusable)
            errors = self._series.update(reports, now, answered)
            self._extra = tuple(extra)
            self._failed = False
        self._evaluated.set()
        return errors

    def with_watch(self, use: Callable[[WatchSeries], None]) -> None:
        """Call `use` with the series while no scrape reads them."""
        with self._lock:
            use(self._series)

    @property
    def events(self) -> tuple[Event, ...]:
        """Return incidents that opened, changed or ended in the last evaluation with data."""
        with self._lock:
            return self._series.events

    def is_gone(self, job_id: str) -> bool:
        """Return True if a job is this watch's, and has not been seen for so long that it ended."""
        with self._lock:
            return self._series.is_gone(job_id)

    def note_errors(self, errors: Iterable[AnalysisError]) -> None:
        """Count errors of analyzers."""
        with self._lock:
            self._series.note_errors(errors)

    def fail(self) -> None:
        """Record an evaluation that could read nothing."""
        with self._lock:
            self._series.fail(time.time())
            self._extra = ()
            self._failed = True
        self._evaluated.set()

    def stand_by(self) -> None:
        """Reset all series but the sums, which another watch continues: it leads."""
        with self._lock:
            self._series = self._series.successor()
            self._extra = ()
        self._evaluated.set()

    @property
    def is_leader(self) -> bool:
        """Return True if this watch leads."""
        return self._leadership.held()

    @property
    def leadership_problem(self) -> str:
        """Return why it is uncertain which watch leads, empty if it is certain."""
        return self._leadership.problem()

    def collect(self) -> Iterator[Metric]:
        """Yield one family per metric; a standby yields only those of its lease."""
        families: dict[str, Family] = {}
        samples = list(self._leadership.samples())
        if self.is_leader:
            with self._lock:
                samples += [*self._series.samples(), *self._extra, *self._more()]
        for sample in samples:
            metric = sample.metric
            if metric.name not in families:
                families[metric.name] = FAMILIES[metric.kind](
                    metric.name, metric.help, labels=metric.labels
                )
            _add(families[metric.name], sample)
        yield from families.values()

    def text(self) -> str:
        """Return the series in the text format of /metrics."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry).decode()


def _add(family: Family, sample: Sample) -> None:
    value = sample.value
    if isinstance(value, HistogramValue) and isinstance(family, HistogramMetricFamily):
        buckets = [(f"{bound:.1f}", float(count)) for bound, count in value.buckets]
        family.add_metric(sample.labels, [*buckets, ("+Inf", value.count)], value.sum)
    elif isinstance(family, HistogramMetricFamily) or isinstance(value, HistogramValue):
        return
    elif math.isfinite(value):
        family.add_metric(sample.labels, float(value))
