"""Converts dcgm-exporter's samples to ours: same names and units as with NVML.

Names are those of DCGM 4.6 and of earlier versions. The tables below account for these pitfalls:

- 4.6 renamed the utilisations to RATIO but left them at 0 to 100; those of PROF fields are 0 to 1.
- An unknown value is a huge number: one of DCGM's blanks.
- On a partitioned GPU, values of the whole GPU appear once per instance; they are counted once.
- The same series appears once per pod if several share a GPU.
- Times of *_VIOLATION are in nanoseconds or microseconds, depending on the source; they are left
  out in favour of newer fields with the unit in their names.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from rankscope_agent.contract.kernel.events import pci_address
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.sources.gpus.dcgm_page import PageSample, parse_page
from rankscope_agent.sources.gpus.nvml import Identity
from rankscope_agent.sources.gpus.reader import info_samples
from rankscope_agent.sources.gpus.readings import (
    CLOCK_EVENT_BITS,
    MAX_PCIE_LANES,
    MEGA,
    MILLI,
    NANO,
    PERCENT,
    RARE_CLOCK_EVENT_BITS,
    RECOVERY_ACTIONS,
    Value,
)

MEBI = float(1 << 20)

MAX_GPUS = 64
"""GPUs read from one page; a node has at most 16. A page with more is not from one node."""

MAX_INSTANCES = 16
"""MIG devices of one GPU; there are at most 7 at a time."""

SMALLEST_BLANK = 140737488355328.0
"""DCGM's blank for floating point numbers (dcgm_structs.h); the following values encode the
reason."""

INT32_BLANKS = range(0x7FFFFFF0, 0x80000000)
INT64_BLANK = float(0x7FFFFFFFFFFFFFF0)
"""Blanks for whole numbers; the 64-bit ones are 2^63 after being printed as floats."""

DEV, PROF = "DCGM_FI_DEV_", "DCGM_FI_PROF_"

Target = tuple[Metric, tuple[str, ...], float]
"""Metric, its labels in addition to the GPU's, and the factor for its value."""

GPU_FIELDS: Mapping[str, Target] = {
    "SM_CLOCK": (metrics.GPU_CLOCK, ("sm",), MEGA),
    "MEM_CLOCK": (metrics.GPU_CLOCK, ("memory",), MEGA),
    "MAX_SM_CLOCK": (metrics.GPU_CLOCK_MAX, ("sm",), MEGA),
    "MEMORY_TEMP": (metrics.GPU_TEMPERATURE, ("memory",), 1),
    "MEMORY_TEMP_CELSIUS": (metrics.GPU_TEMPERATURE, ("memory",), 1),
    "GPU_TEMP": (metrics.GPU_TEMPERATURE, ("core",), 1),
    "GPU_TEMP_CELSIUS": (metrics.GPU_TEMPERATURE, ("core",), 1),
    "GPU_TEMP_LIMIT": (metrics.GPU_TEMPERATURE_MARGIN, (), 1),
    "GPU_TEMP_MARGIN_CELSIUS": (metrics.GPU_TEMPERATURE_MARGIN, (), 1),
    "POWER_USAGE": (metrics.GPU_POWER, (), 1),
    "BOARD_POWER_WATTS": (metrics.GPU_POWER, (), 1),
    "POWER_MGMT_LIMIT": (metrics.GPU_POWER_LIMIT, ("requested",), 1),
    "BOARD_POWER_LIMIT_REQUESTED_WATTS": (metrics.GPU_POWER_LIMIT, ("requested",), 1),
    "POWER_MGMT_LIMIT_DEF": (metrics.GPU_POWER_LIMIT, ("default",), 1),
    "BOARD_POWER_LIMIT_DEFAULT_WATTS": (metrics.GPU_POWER_LIMIT, ("default",), 1),
    "ENFORCED_POWER_LIMIT": (metrics.GPU_POWER_LIMIT, ("enforced",), 1),
    "BOARD_POWER_LIMIT_ENFORCED_WATTS": (metrics.GPU_POWER_LIMIT, ("enforced",), 1),
    "TOTAL_ENERGY_CONSUMPTION": (metrics.GPU_ENERGY, (), MILLI),
    "PSTATE": (metrics.GPU_PSTATE, (), 1),
    "GPU_PSTATE": (metrics.GPU_PSTATE, (), 1),
    "GPU_UTIL": (metrics.GPU_UTILIZATION, (), PERCENT),
    "GPU_UTIL_RATIO": (metrics.GPU_UTILIZATION, (), PERCENT),
    "MEM_COPY_UTIL": (metrics.GPU_MEMORY_ACTIVITY, (), PERCENT),
    "MEM_COPY_UTIL_RATIO": (metrics.GPU_MEMORY_ACTIVITY, (), PERCENT),
    "ENC_UTIL": (metrics.GPU_ENGINE_UTILIZATION, ("encoder",), PERCENT),
    "ENC_UTIL_RATIO": (metrics.GPU_ENGINE_UTILIZATION, ("encoder",), PERCENT),
    "DEC_UTIL": (metrics.GPU_ENGINE_UTILIZATION, ("decoder",), PERCENT),
    "DEC_UTIL_RATIO": (metrics.GPU_ENGINE_UTILIZATION, ("decoder",), PERCENT),
    "FB_TOTAL": (metrics.GPU_MEMORY_TOTAL, (), MEBI),
    "FB_USED": (metrics.GPU_MEMORY_USED, (), MEBI),
    "FB_FREE": (metrics.GPU_MEMORY_FREE, (), MEBI),
    "ECC_SBE_VOL_TOTAL": (metrics.GPU_ECC_ERRORS, ("corrected", "volatile"), 1),
    "ECC_DBE_VOL_TOTAL": (metrics.GPU_ECC_ERRORS, ("uncorrected", "volatile"), 1),
    "ECC_SBE_AGG_TOTAL": (metrics.GPU_ECC_ERRORS, ("corrected", "aggregate"), 1),
    "ECC_DBE_AGG_TOTAL": (metrics.GPU_ECC_ERRORS, ("uncorrected", "aggregate"), 1),
    "THRESHOLD_SRM": (metrics.GPU_SRAM_THRESHOLD, (), 1),
    "SRAM_EXCEEDED": (metrics.GPU_SRAM_THRESHOLD, (), 1),
    "RETIRED_SBE": (metrics.GPU_RETIRED_PAGES, ("corrected",), 1),
    "PAGE_RETIRED_SBE_TOTAL": (metrics.GPU_RETIRED_PAGES, ("corrected",), 1),
    "RETIRED_DBE": (metrics.GPU_RETIRED_PAGES, ("uncorrected",), 1),
    "PAGE_RETIRED_DBE_TOTAL": (metrics.GPU_RETIRED_PAGES, ("uncorrected",), 1),
    "RETIRED_PENDING": (metrics.GPU_RETIRED_PENDING, (), 1),
    "PAGE_RETIRED_PENDING": (metrics.GPU_RETIRED_PENDING, (), 1),
    "CORRECTABLE_REMAPPED_ROWS": (metrics.GPU_REMAPPED_ROWS, ("corrected",), 1),
    "ROW_REMAP_CORRECTABLE_TOTAL": (metrics.GPU_REMAPPED_ROWS, ("corrected",), 1),
    "UNCORRECTABLE_REMAPPED_ROWS": (metrics.GPU_REMAPPED_ROWS, ("uncorrected",), 1),
    "ROW_REMAP_UNCORRECTABLE_TOTAL": (metrics.GPU_REMAPPED_ROWS, ("uncorrected",), 1),
    "ROW_REMAP_PENDING": (metrics.GPU_REMAP_PENDING, (), 1),
    "ROW_REMAP_FAILURE": (metrics.GPU_REMAP_FAILURE, (), 1),
    "ROW_REMAP_FAILED": (metrics.GPU_REMAP_FAILURE, (), 1),
    "PCIE_REPLAY_COUNTER": (metrics.GPU_PCIE_REPLAYS, (), 1),
    "PCIE_REPLAY_TOTAL": (metrics.GPU_PCIE_REPLAYS, (), 1),
    "PCIE_COUNT_CORRECTABLE_ERRORS": (metrics.GPU_PCIE_ERRORS, ("correctable",), 1),
    "PCIE_CORRECTABLE_ERROR_TOTAL": (metrics.GPU_PCIE_ERRORS, ("correctable",), 1),
    "PCIE_LINK_GEN": (metrics.GPU_PCIE_GENERATION, (), 1),
    "PCIE_LINK_WIDTH": (metrics.GPU_PCIE_WIDTH, (), 1),
    "PCIE_MAX_LINK_GEN": (metrics.GPU_PCIE_GENERATION_MAX, (), 1),
    "PCIE_MAX_LINK_WIDTH": (metrics.GPU_PCIE_WIDTH_MAX, (), 1),
    "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": (metrics.GPU_NVLINK_ERRORS, ("crc_flit",), 1),
    "NVLINK_CRC_FLIT_ERROR_TOTAL": (metrics.GPU_NVLINK_ERRORS, ("crc_flit",), 1),
    "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": (metrics.GPU_NVLINK_ERRORS, ("crc_data",), 1),
    "NVLINK_CRC_DATA_ERROR_TOTAL": (metrics.GPU_NVLINK_ERRORS, ("crc_data",), 1),
    "NVLINK_REPLAY_ERROR_COUNT_TOTAL": (metrics.GPU_NVLINK_ERRORS, ("replay",), 1),
    "NVLINK_REPLAY_ERROR_TOTAL": (metrics.GPU_NVLINK_ERRORS, ("replay",), 1),
    "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": (metrics.GPU_NVLINK_ERRORS, ("recovery",), 1),
    "NVLINK_RECOVERY_ERROR_TOTAL": (metrics.GPU_NVLINK_ERRORS, ("recovery",), 1),
    "XID_ERRORS": (metrics.GPU_LAST_XID, (), 1),
    "XID_ERROR": (metrics.GPU_LAST_XID, (), 1),
    "CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": (
        metrics.GPU_CLOCK_EVENT_SECONDS,
        ("sw_power_cap",),
        NANO,
    ),
    "CLOCKS_EVENT_REASON_SYNC_BOOST_NS": (metrics.GPU_CLOCK_EVENT_SECONDS, ("sync_boost",), NANO),
    "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": (
        metrics.GPU_CLOCK_EVENT_SECONDS,
        ("sw_thermal_slowdown",),
        NANO,
    ),
    "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": (
        metrics.GPU_CLOCK_EVENT_SECONDS,
        ("hw_thermal_slowdown",),
        NANO,
    ),
    "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": (
        metrics.GPU_CLOCK_EVENT_SECONDS,
        ("hw_power_brake",),
        NANO,
    ),
}
"""DCGM_FI_DEV_ fields of whole GPUs."""

ENGINE_FIELDS = frozenset({"GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO"})
"""DCGM_FI_PROF_ fields of the engine that runs kernels, which dcgm-exporter shows by default."""

ACTIVITY_FIELDS: Mapping[str, Metric] = {
    "SM_ACTIVE": metrics.GPU_SM_ACTIVE,
    "SM_UTIL_RATIO": metrics.GPU_SM_ACTIVE,
    "SM_OCCUPANCY": metrics.GPU_SM_OCCUPANCY,
    "SM_OCCUPANCY_RATIO": metrics.GPU_SM_OCCUPANCY,
    "PIPE_TENSOR_ACTIVE": metrics.GPU_TENSOR_ACTIVE,
    "TENSOR_UTIL_RATIO": metrics.GPU_TENSOR_ACTIVE,
    "DRAM_ACTIVE": metrics.GPU_DRAM_ACTIVE,
    "DRAM_UTIL_RATIO": metrics.GPU_DRAM_ACTIVE,
}
"""DCGM_FI_PROF_ fields, which are 0 to 1 under both names."""

INSTANCE_METRICS: Mapping[Metric, Metric] = {
    metrics.GPU_MEMORY_TOTAL: metrics.MIG_MEMORY_TOTAL,
    metrics.GPU_MEMORY_USED: metrics.MIG_MEMORY_USED,
    metrics.GPU_MEMORY_FREE: metrics.MIG_MEMORY_FREE,
    metrics.GPU_SM_ACTIVE: metrics.MIG_SM_ACTIVE,
}
"""Quantities that belong to the instance on a series that names one."""

GRAPHICS = ("graphics",)

ONLY_INSTANCE = frozenset(ACTIVITY_FIELDS.values())
"""These belong to the instance as well but have no metric of ours: they must not pass for the
GPU's."""

REASON_FIELDS = frozenset({"CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS"})
XID_FIELDS = frozenset({"XID_ERRORS", "XID_ERROR"})
RECOVERY_FIELDS = frozenset({"GET_GPU_RECOVERY_ACTION", "GPU_RECOVERY_ACTION"})

_INDEX = re.compile(r"[0-9]{1,3}")
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_NAME = re.compile(r"[ -~]{1,96}")
_PROFILE = re.compile(r"[0-9A-Za-z.+_-]{1,32}")

UNKNOWN = "unknown"


class DcgmPage:
    """Converts one page to samples.

    Args:
        text: the page.
    """

    def __init__(self, text: str) -> None:
        self.ignored: Counter[str] = Counter()
        """Samples that were not converted, by reason."""
        self._identities: dict[str, Identity] = {}
        self._found: dict[tuple[str, str, tuple[str, ...]], Sample] = {}
        self._instances: set[tuple[str, str]] = set()
        self._blank: set[str] = set()
        self._answering: set[str] = set()
        for sample in parse_page(text):
            if sample is None:
                self.ignored["bad_line"] += 1
            else:
                reason = self._take(sample)
                if reason:
                    self.ignored[reason] += 1

    @property
    def gpus(self) -> tuple[Identity, ...]:
        """The GPUs on the page."""
        return tuple(self._identities.values())

    @property
    def blank_gpus(self) -> frozenset[Identity]:
        """The GPUs about which the exporter knows nothing but their newest Xid."""
        return frozenset(self._identities[key] for key in self._blank - self._answering)

    def samples(self) -> Iterator[Sample]:
        """Yield the converted samples, and the number of the others."""
        for identity in self._identities.values():
            yield from info_samples(identity, "")
        for (_, key, extra), sample in self._found.items():
            labels = self._identities[key].labels
            yield Sample(sample.metric, (*labels, *extra), sample.value)
        for reason, count in sorted(self.ignored.items()):
            yield metrics.DCGM_SERIES_IGNORED.sample(count, reason=reason)

    def _take(self, sample: PageSample) -> str:
        """Convert a sample; return why it was rejected, or an empty text."""
        if not sample.name.startswith((DEV, PROF)):
            return "not_dcgm"
        if "nvlink" in sample.labels or "nvswitch" in sample.labels:
            return "blank" if _is_blank(sample.value) else "not_a_gpu"
        key = self._identify(sample.labels)
        if _is_blank(sample.value):
            self._blank.update({key} - {""})
            return "blank"
        if sample.name.removeprefix(DEV) not in XID_FIELDS:
            self._answering.add(key)
        values = tuple(_values(sample))
        if not values:
            return "unknown_field"
        if not key:
            return "unusable_labels"
        reasons = {self._keep(key, sample.labels, *value) for value in values}
        return "" if "" in reasons else min(reasons)

    def _keep(
        self,
        key: str,
        labels: Mapping[str, str],
        metric: Metric,
        extra: tuple[str, ...],
        value: float,
    ) -> str:
        if labels.get("GPU_I_ID"):
            if metric in INSTANCE_METRICS:
                metric, extra = INSTANCE_METRICS[metric], (*_instance(labels), *extra)
                self._instances.add((key, extra[0]))
                if len([at for at in self._instances if at[0] == key]) > MAX_INSTANCES:
                    return "too_many_instances"
            elif metric in ONLY_INSTANCE or extra == GRAPHICS:
                return "instance"
        if not _is_usable(metric, value):
            return "unusable_value"
        if (metric.name, key, extra) in self._found:
            return "repeated"
        self._found[metric.name, key, extra] = Sample(metric, (), value)
        return ""

    def _identify(self, labels: Mapping[str, str]) -> str:
        """Return the key of the GPU that labels name; empty if they name none."""
        gpu, uuid = labels.get("gpu", ""), labels.get("UUID", "")
        if not _INDEX.fullmatch(gpu) or (uuid and not _UUID.fullmatch(uuid)):
            return ""
        key = uuid or f"index {gpu}"
        known = self._identities.get(key)
        if known is None and len(self._identities) >= MAX_GPUS:
            return ""
        pci = pci_address(labels.get("pci_bus_id", ""))
        model = labels.get("modelName", "")
        if known is None or (known.pci == UNKNOWN and pci) or (not known.model and model):
            self._identities[key] = Identity(
                gpu=gpu,
                uuid=uuid or UNKNOWN,
                pci=pci or (known.pci if known else UNKNOWN),
                model=model if _NAME.fullmatch(model) else known.model if known else "",
                driver=_text(labels.get("DCGM_FI_DRIVER_VERSION", "")),
            )
        return key


def _text(value: str) -> str:
    return value if _NAME.fullmatch(value) else ""


def _instance(labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the labels of a MIG device; dcgm-exporter only names GPU instances."""
    number, profile = labels["GPU_I_ID"], labels.get("GPU_I_PROFILE", "")
    return (
        number if _INDEX.fullmatch(number) else UNKNOWN,
        "",
        profile if _PROFILE.fullmatch(profile) else "",
    )


def _values(sample: PageSample) -> Iterator[Value]:
    if sample.name.startswith(PROF):
        field = sample.name.removeprefix(PROF)
        if field in ACTIVITY_FIELDS:
            yield ACTIVITY_FIELDS[field], (), sample.value
        elif field in ENGINE_FIELDS:
            yield metrics.GPU_ENGINE_UTILIZATION, GRAPHICS, sample.value
        return
    field = sample.name.removeprefix(DEV)
    if field in REASON_FIELDS:
        yield from _reasons(sample.value)
    elif field in RECOVERY_FIELDS:
        action = RECOVERY_ACTIONS.get(int(sample.value), "other")
        yield metrics.GPU_RECOVERY_ACTION, (action,), 1
    elif field in GPU_FIELDS:
        metric, extra, scale = GPU_FIELDS[field]
        yield metric, extra, sample.value * scale


def _reasons(mask: float) -> Iterator[Value]:
    bits = int(mask)
    for bit, reason in CLOCK_EVENT_BITS.items():
        yield metrics.GPU_CLOCK_EVENT, (reason,), int(bool(bits & bit))
    for bit, reason in RARE_CLOCK_EVENT_BITS.items():
        if bits & bit:
            yield metrics.GPU_CLOCK_EVENT, (reason,), 1


def _is_blank(value: float) -> bool:
    """Return True if a value is one of DCGM's blanks, or not a number at all."""
    if not math.isfinite(value) or value >= INT64_BLANK:
        return True
    return SMALLEST_BLANK <= value < SMALLEST_BLANK + 16 or value in INT32_BLANKS


def _is_usable(metric: Metric, value: float) -> bool:
    """Return True if a value is plausible for its metric."""
    if metric in {metrics.GPU_TEMPERATURE, metrics.GPU_TEMPERATURE_MARGIN}:
        return -100 <= value <= 200
    if metric.name.endswith("_ratio"):
        return 0 <= value <= 1
    if metric in {metrics.GPU_PCIE_WIDTH, metrics.GPU_PCIE_WIDTH_MAX}:
        return 0 <= value <= MAX_PCIE_LANES
    return value >= 0
