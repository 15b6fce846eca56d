"""The series of nodes in Prometheus, without the labels that scraping adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.intake.prometheus_api import Matrix
from rankscope_analyzers.numeric.arrays import Floats

SCRAPED = frozenset(
    (
        "__name__",
        "instance",
        "job",
        # the Prometheus operator's, of the scraped pod
        "pod",
        "namespace",
        "container",
        "endpoint",
        "service",
        # those of several servers that are queried as one
        "prometheus",
        "prometheus_replica",
    )
)
"""Labels that say by whom a series was read and from which pod. An agent that is replaced has
others, and tells again what its predecessor told. `cluster` is none of them: two clusters may have
nodes of one name."""

Labels = Mapping[str, str]


def series_of_nodes(
    matrices: Iterable[Matrix], node_of: Callable[[Labels], str], name: str = ""
) -> Iterator[Series]:
    """Yield the series of each node; those of its agents, one after the other, are one.

    Args:
        matrices: over the same moments.
        node_of: returns the node that a series is about.
        name: of the metric, where the query does not keep it.
    """
    rows: dict[tuple[str, str, frozenset[tuple[str, str]]], Floats] = {}
    times: Floats = np.empty(0)
    for matrix in matrices:
        times = matrix.times
        for labels, row in zip(matrix.labels, matrix.values, strict=True):
            own = frozenset(item for item in labels.items() if item[0] not in SCRAPED)
            key = node_of(labels), name or labels["__name__"], own
            rows[key] = np.fmax(rows[key], row) if key in rows else row
    for (node, of, own), row in rows.items():
        known = ~np.isnan(row)
        if known.any():
            yield Series(node, of, dict(own), times[known], row[known])
