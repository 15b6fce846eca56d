"""The samples of all collectors, indexed by metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
        self._described: dict[str, Sequence[tuple[Labels, float]]] = {}
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

    def described(self, metric: Metric) -> Sequence[tuple[Labels, float]]:
        """Return the same with labels by name."""
        found = self._described.get(metric.name)
        if found is None:
            found = [
                (dict(zip(metric.labels, labels, strict=True)), value)
                for labels, value in self.of(metric)
            ]
            self._described[metric.name] = found
        return found

    def values(self, metric: Metric) -> Mapping[tuple[str, ...], float]:
        """Return the values by labels."""
        return self._by_name.get(metric.name, {})
