"""Exposes the watch's series through prometheus_client."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rankscope_agent.contract.model import Sample
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.isolation.boundary import AnalysisError
from rankscope_analyzers.watch.findings import Watch
from rankscope_analyzers.watch.leadership import Alone, Leadership
from rankscope_analyzers.watch.lives import Event


class Exported(Collector):
    """What is served: the watch, and series about its last evaluation.

    Args:
        leadership: no finding is served while another watch is the one that evaluates.
    """

    def __init__(self, leadership: Leadership | None = None) -> None:
        self._leadership = leadership or Alone()
        self._watch = Watch()
        self._more: tuple[Sample, ...] = ()
        self._lock = threading.Lock()  # scrapes come on threads of their own
        self._evaluated = threading.Event()
        self._due = math.inf
        self._failed = False

    @property
    def failed(self) -> bool:
        """Whether the newest evaluation could read or judge nothing."""
        return self._failed

    @property
    def evaluated(self) -> bool:
        """Whether an evaluation has ended, whatever came of it."""
        return self._evaluated.is_set()

    def expect(self, seconds: float) -> None:
        """Note that a turn begins, and within how many seconds the next one must."""
        self._due = time.monotonic() + seconds

    @property
    def overdue(self) -> bool:
        """Whether the next turn should have begun long ago: whoever evaluates hangs."""
        return time.monotonic() > self._due

    def update(
        self, reports: Sequence[JobReport], now: float, unusable: int, more: Sequence[Sample]
    ) -> tuple[AnalysisError, ...]:
        """Take the reports of an evaluation.

        Args:
            reports: one for each job.
            now: Unix time of the evaluation.
            unusable: jobs whose records made no sense.
            more: series about the evaluation itself.

        Returns:
            The errors of jobs whose reports could not be made series of.
        """
        with self._lock:
            self._watch.note_failures(unusable)
            errors = self._watch.update(reports, now)
            self._more = tuple(more)
            self._failed = False
        self._evaluated.set()
        return errors

    def with_watch(self, use: Callable[[Watch], None]) -> None:
        """Call `use` with the watch while nobody scrapes it."""
        with self._lock:
            use(self._watch)

    @property
    def news(self) -> tuple[Event, ...]:
        """What the last evaluation that read anything found changed in the life of incidents."""
        with self._lock:
            return self._watch.news

    def note_errors(self, errors: Iterable[AnalysisError]) -> None:
        """Count what was not made because something raised."""
        with self._lock:
            self._watch.note_errors(errors)

    def fail(self) -> None:
        """Take an evaluation that could read nothing."""
        with self._lock:
            self._watch.fail()
            self._more = ()
            self._failed = True
        self._evaluated.set()

    def stand_by(self) -> None:
        """Forget everything: another watch goes on, and its sums begin where this one's ended."""
        with self._lock:
            self._watch = Watch()
            self._more = ()
        self._evaluated.set()

    @property
    def leads(self) -> bool:
        """Whether this is the watch that evaluates."""
        return self._leadership.held()

    @property
    def leading_problem(self) -> str:
        """Why it is not known for sure which watch evaluates, empty if it is."""
        return self._leadership.problem()

    def collect(self) -> Iterator[Metric]:
        """Yield one family per metric: of a watch that stands by, those of its lease alone."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        samples = list(self._leadership.samples())
        if self.leads:
            with self._lock:
                samples += [*self._watch.samples(), *self._more]
        for sample in samples:
            metric = sample.metric
            if metric.name not in families:
                family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                families[metric.name] = family(metric.name, metric.help, labels=metric.labels)
            if isinstance(sample.value, int | float) and math.isfinite(sample.value):
                families[metric.name].add_metric(sample.labels, float(sample.value))
        yield from families.values()

    def text(self) -> str:
        """Return the series as /metrics shows them."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry).decode()
