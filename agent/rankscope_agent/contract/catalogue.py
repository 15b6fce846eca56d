"""The metric catalogue: all series that Rankscope exports, collected from the `metrics` modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType

from rankscope_agent.contract.metrics import (
    agent,
    canary,
    cluster_jobs,
    goodput,
    summary,
    watch,
)
from rankscope_agent.contract.model import Metric
from rankscope_agent.contract.sources import SOURCES

SUBJECTS: tuple[ModuleType, ...] = (
    agent,
    *dict.fromkeys(module for source in SOURCES for module in source.metrics),
    summary,
    watch,
    canary,
    goodput,
    cluster_jobs,
)
"""The modules of the catalogue, in the order of docs/metrics.md."""


def declared(subjects: Iterable[ModuleType]) -> Iterator[Metric]:
    """Yield the metrics that the modules declare, in order of declaration."""
    for subject in subjects:
        yield from (value for value in vars(subject).values() if isinstance(value, Metric))


CATALOGUE: tuple[Metric, ...] = tuple(declared(SUBJECTS))
