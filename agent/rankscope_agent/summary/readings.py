"""The samples of all collectors, by metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rankscope_agent.model import HistogramValue, Metric, Sample, Scrape

Labels = Mapping[str, str]


class Readings:
    """Looks up samples of one moment.

    Args:
        scrapes: of all collectors, as they came; what is no sample is passed over.
    """

    def __init__(self, scrapes: Iterable[Scrape]) -> None:
        self._by_name: dict[str, list[Sample]] = {}
        for scrape in scrapes:
            for sample in scrape.samples:
                if isinstance(sample, Sample):
                    self._by_name.setdefault(sample.metric.name, []).append(sample)

    def of(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the labels of a metric's series, in the order of the catalogue, and their values.

        Histograms have none.
        """
        for sample in self._by_name.get(metric.name, ()):
            if not isinstance(sample.value, HistogramValue):
                yield sample.labels, sample.value

    def described(self, metric: Metric) -> Iterator[tuple[Labels, float]]:
        """Yield the same with labels by name."""
        for labels, value in self.of(metric):
            yield dict(zip(metric.labels, labels, strict=True)), value

    def values(self, metric: Metric) -> Mapping[tuple[str, ...], float]:
        """Return the values by labels."""
        return dict(self.of(metric))
