"""Counts failed calls to the driver's library by call and error code."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.gpus.nvml import NvmlError, code_name


class CallErrors:
    """Shared by all threads that make calls; calls and codes come from closed vocabularies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, error: NvmlError) -> None:
        """Count a failed call."""
        with self._lock:
            self._counts[error.call, code_name(error.code)] += 1

    def samples(self) -> Iterator[Sample]:
        """Yield the counts so far."""
        with self._lock:
            counts = dict(self._counts)
        for labels, count in sorted(counts.items()):
            yield Sample(metrics.NVML_CALL_ERRORS, labels, count)
