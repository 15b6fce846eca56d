"""The samples of all collectors, indexed by metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rankscope_agent.contract.model import HistogramValue, Metric, Sample, Scrape

Labels = Mapping[str, str]


class Readings:
    """Looks up samples of one point in time.

    Of two equal series the first counts, as on the page: two sources of one counter never agree
    exactly.

    Args:
        scrapes: of all collectors, unvalidated; anything that is not a sample is skipped.
    """

    def __init__(self, scrapes: Iterable[Scrape]) -> None:
        self._by_name: dict[str, dict[tuple[str, ...], float]] = {}
        for scrape in scrapes:
            samples: Iterable[object] = scrape.samples
            for sample in samples:
                if isinstance(sample, Sample) and not isinstance(sample.value, HistogramValue):
                    values = self._by_name.setdefault(sample.metric.name, {})
                    values.setdefault(sample.labels, sample.value)

    def of(self, metric: Metric) -> Iterable[tuple[tuple[str, ...], float]]:
        """Return the labels of a metric's series, in the order of the catalogue, and their values.

        Histograms are left out.
        """
        return self.values(metric).items()

    def described(self, metric: Metric) -> Iterator[tuple[Labels, float]]:
        """Yield the same with labels by name."""
        for labels, value in self.of(metric):
            yield dict(zip(metric.labels, labels, strict=True)), value

    def values(self, metric: Metric) -> Mapping[tuple[str, ...], float]:
        """Return the values by labels."""
        return self._by_name.get(metric.name, {})
