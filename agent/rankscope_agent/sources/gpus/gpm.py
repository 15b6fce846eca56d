"""Activity of a GPU or GPU instance by GPM, which compares two samples, through nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rankscope_agent.sources.gpus.nvml import SUCCESS


class GpmSamples:
    """Two GPM samples used alternately, and the request that compares them."""

    def __init__(self, pynvml: Any, metrics: Sequence[int]) -> None:
        self._pynvml = pynvml
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(metrics)
        for index, metric in enumerate(metrics):
            self._request.metrics[index].metricId = metric
        self._count = len(metrics)
        self._spare = pynvml.nvmlGpmSampleAlloc()
        self._newest = pynvml.nvmlGpmSampleAlloc()
        self._primed = False

    def read(self, handle: Any, gpu_instance: int | None) -> Mapping[int, float]:
        """Take a sample and compare it with the previous one."""
        if gpu_instance is None:
            self._pynvml.nvmlGpmSampleGet(handle, self._spare)
        else:
            self._pynvml.nvmlGpmMigSampleGet(handle, gpu_instance, self._spare)
        self._spare, self._newest = self._newest, self._spare
        if not self._primed:
            self._primed = True
            return {}
        self._request.sample1 = self._spare
        self._request.sample2 = self._newest
        self._pynvml.nvmlGpmMetricsGet(self._request)
        answers = [self._request.metrics[index] for index in range(self._count)]
        return {int(at.metricId): float(at.value) for at in answers if at.nvmlReturn == SUCCESS}

    def free(self) -> None:
        """Free both samples."""
        for sample in (self._spare, self._newest):
            with suppress(self._pynvml.NVMLError):
                self._pynvml.nvmlGpmSampleFree(sample)
