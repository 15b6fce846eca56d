"""GPUs that need action, derived from all series about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rankscope_agent.collecting.summary.readings import Readings
from rankscope_agent.collecting.summary.windows import Increases, Means
from rankscope_agent.contract.metrics import gpus
from rankscope_agent.contract.metrics import summary as metrics
from rankscope_agent.contract.model import Metric, Sample

Gpu = tuple[str, ...]
"""Index, uuid and PCI address: the labels with which every series of a GPU begins."""

LOAD_SECONDS = 300.0
LOADED = 0.5
"""Idle GPUs may be slow, and lower their PCIe generation; a GPU that ran kernels for half of the
last five minutes is busy."""

ERROR_SECONDS = 900.0
SCOPES = ("aggregate", "volatile")

STATES: Mapping[str, Metric] = {
    "lost": gpus.GPU_LOST,
    "unresponsive": gpus.GPU_UNRESPONSIVE,
    "row_remap_pending": gpus.GPU_REMAP_PENDING,
    "page_retirement_pending": gpus.GPU_RETIRED_PENDING,
    "row_remap_failure": gpus.GPU_REMAP_FAILURE,
    "sram_threshold": gpus.GPU_SRAM_THRESHOLD,
}
"""Conditions that have their own series, whose value is then 1."""

THERMAL = "thermal_slowdown"
THERMAL_REASONS = ("hw_thermal_slowdown", "sw_thermal_slowdown")
BRAKE = "power_brake"
BRAKE_REASONS = ("hw_power_brake",)
NO_NVLINK = "no_nvlink"
"""No link of the GPU is up while others of its node have some: where none has any, the fabric is
not started, or the node is a virtual machine without NVLink."""

CONDITIONS = (*STATES, THERMAL, BRAKE, NO_NVLINK)
"""All values of the label `condition`."""


class GpuSummary:
    """Remembers what GPUs did in the last minutes, and which of them were in which condition."""

    def __init__(self) -> None:
        self._load: Means[Gpu] = Means(LOAD_SECONDS)
        self._uncorrected: Increases[Gpu] = Increases(ERROR_SECONDS)
        self._seen: set[tuple[Gpu, str]] = set()

    def samples(self, readings: Readings, now: float) -> Iterator[Sample]:
        """Process the current samples of GPUs, and yield what is out of order."""
        self._look(readings, now)
        known = {labels[: len(gpus.GPU)] for labels, _ in readings.of(gpus.GPU_INFO)}
        active = set(self._active(readings))
        self._seen |= active
        # A GPU that is gone is not in order either: nothing is known about it.
        self._seen = {one for one in self._seen if one in active or one[0] in known}
        for one in sorted(self._seen):
            device, condition = one
            yield Sample(metrics.GPU_CONDITION, (*device, condition), float(one in active))
        yield from self._ratios(readings)
        for device in {labels[: len(gpus.GPU)] for labels, _ in readings.of(gpus.GPU_ECC_ERRORS)}:
            # One error may be counted in both: since the GPU was made, and since its driver was
            # loaded.
            errors = max(self._uncorrected.increase((*device, scope), now) for scope in SCOPES)
            if errors:
                yield Sample(metrics.GPU_RECENT_UNCORRECTED, device, errors)

    def _look(self, readings: Readings, now: float) -> None:
        for device, value in _loads(readings).items():
            self._load.add(device, value, now)
        for labels, errors in readings.of(gpus.GPU_ECC_ERRORS):
            *of_gpu, kind, scope = labels
            if kind == "uncorrected":
                self._uncorrected.add((*of_gpu, scope), errors, now)
        self._load.forget(now)
        self._uncorrected.forget(now)

    def _loaded(self, device: Gpu, *, if_unknown: bool) -> bool:
        load = self._load.mean(device)
        return if_unknown if load is None else load > LOADED

    def _active(self, readings: Readings) -> Iterator[tuple[Gpu, str]]:
        for condition, metric in STATES.items():
            yield from ((device, condition) for device, on in readings.of(metric) if on == 1)
        for labels, on in readings.of(gpus.GPU_CLOCK_EVENT):
            device, reason = labels[:-1], labels[-1]
            if on == 1 and reason in THERMAL_REASONS and self._loaded(device, if_unknown=True):
                yield device, THERMAL
            elif on == 1 and reason in BRAKE_REASONS:
                yield device, BRAKE

        links = readings.values(gpus.GPU_NVLINKS_UP)
        if any(links.values()):
            yield from ((device, NO_NVLINK) for device, up in links.items() if not up)

    def _ratios(self, readings: Readings) -> Iterator[Sample]:
        limits = readings.values(gpus.GPU_POWER_LIMIT)
        for labels, limit in limits.items():
            device, kind = labels[:-1], labels[-1]
            default = limits.get((*device, "default"), 0.0)
            if kind == "enforced" and limit < default:
                yield Sample(metrics.GPU_POWER_REDUCED, device, limit / default)
        lanes = _parts(readings, gpus.GPU_PCIE_WIDTH, gpus.GPU_PCIE_WIDTH_MAX)
        generations = _parts(readings, gpus.GPU_PCIE_GENERATION, gpus.GPU_PCIE_GENERATION_MAX)
        for device in lanes.keys() | generations.keys():
            part = min(lanes.get(device, 1.0), generations.get(device, 1.0))
            if part < 1 and self._loaded(device, if_unknown=False):
                yield Sample(metrics.GPU_PCIE_REDUCED, device, part)


def _loads(readings: Readings) -> Mapping[Gpu, float]:
    """Return how busy GPUs are; of a partitioned one, whose use drivers hide, its busiest part."""
    busiest: dict[Gpu, float] = {}
    for labels, active in readings.of(gpus.MIG_SM_ACTIVE):
        device = labels[: len(gpus.GPU)]
        busiest[device] = max(active, busiest.get(device, 0.0))
    return busiest | dict(readings.of(gpus.GPU_UTILIZATION))


def _parts(readings: Readings, now: Metric, best: Metric) -> Mapping[Gpu, float]:
    most = readings.values(best)
    return {
        device: value / most[device]
        for device, value in readings.of(now)
        if most.get(device, 0.0) > 0
    }
