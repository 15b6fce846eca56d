"""Series of a job's nodes from Prometheus, for the layers other than step times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake import readable_values
from rankscope_analyzers.intake.observed import Observed, Series, gathered
from rankscope_analyzers.intake.prometheus_api import Matrix, Prometheus, PrometheusError
from rankscope_analyzers.intake.prometheus_instances import LARGEST_WINDOW_SECONDS
from rankscope_analyzers.intake.prometheus_series import series_of_nodes
from rankscope_analyzers.steps.job_records import SourceError

POINTS = 24
"""Moments requested. Two would do for counters; 512 nodes of 240 series have three million values
at 24, which is what a second of parsing allows."""

SMALLEST_STEP_SECONDS = 15.0
"""The usual scrape interval; a shorter step repeats values."""

NODES_PER_QUERY = 64
"""Instances named in one selector, so that queries stay a few kilobytes long."""

CLUSTER = "cluster"
"""Tells nodes of one name from each other, as their instances do here."""


def from_prometheus(
    server: Prometheus,
    nodes: Mapping[str, str],
    metrics: Iterable[Metric],
    since: float,
    now: float,
) -> Observed:
    """Read the newest hour of nodes.

    Args:
        server: to query.
        nodes: the node of each instance that is queried.
        metrics: series to read.
        since: Unix time before which nothing is requested.
        now: Unix time of the end.

    Raises:
        SourceError: the server cannot be queried.
    """
    start = max(since, now - LARGEST_WINDOW_SECONDS)
    step = max(SMALLEST_STEP_SECONDS, (now - start) / POINTS)
    names = sorted({metric.name for metric in metrics})
    try:
        read = [_read(server, names, part, (start, now, step)) for part in _parts(sorted(nodes))]
    except PrometheusError as error:
        raise SourceError(str(error)) from None
    series, unread = readable_values.separated(
        series_of_nodes(read, lambda labels: nodes[labels.get("instance", "")])
    )
    return gathered(map(_without_cluster, series), server.url, unread)


def _parts(instances: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(instances), NODES_PER_QUERY):
        yield instances[start : start + NODES_PER_QUERY]


def _read(
    server: Prometheus,
    names: Sequence[str],
    instances: Sequence[str],
    window: tuple[float, float, float],
) -> Matrix:
    # re.escape writes what RE2 reads; the selector's string has Go's escapes, like JSON's.
    wanted = json.dumps("|".join(re.escape(one) for one in instances))
    query = f"{{__name__=~{json.dumps('|'.join(names))}, instance=~{wanted}}}"
    return server.range(query, *window)


def _without_cluster(series: Series) -> Series:
    labels = {key: text for key, text in series.labels.items() if key != CLUSTER}
    return replace(series, labels=labels)
