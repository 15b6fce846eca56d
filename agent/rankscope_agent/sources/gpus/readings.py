"""Tables that map NVML calls and field values of a GPU to our metrics and units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Metric
from rankscope_agent.sources.gpus.nvml import ALL_LINKS, CLOCK_MEMORY, CLOCK_SM, Device

Value = tuple[Metric, tuple[str, ...], float]
"""A metric, its labels in addition to those of the GPU, and the value in the metric's unit."""

MEGA = 1e6
MILLI = 1e-3
NANO = 1e-9
PERCENT = 0.01
KIBI = 1024.0

BLANKS = frozenset({2**32 - 1, 2**64 - 1, 2**63 - 1})
"""All ones: the value of a field whose register could not be read."""

MAX_PCIE_LANES = 32
"""Wider links do not exist; after the GPU has fallen off the bus the width reads 63."""

MAX_TEMPERATURE = 200
"""No working GPU reports more; sentinels such as 255 and 511 do."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field value and its conversion.

    Args:
        id: NVML_FI_DEV_* number.
        labels: values of the metric's labels in addition to the GPU's.
        scale: factor from the raw unit to the metric's unit.
        scope: `ALL_LINKS` for sums over NVLinks.
        if_nonzero: whether it is exported only once its value has exceeded 0, so that rare errors
            take no series.
    """

    id: int
    metric: Metric
    labels: tuple[str, ...] = ()
    scale: float = 1.0
    scope: int = 0
    if_nonzero: bool = False


FIELDS: tuple[Field, ...] = (
    Field(74, metrics.GPU_CLOCK_EVENT_SECONDS, ("sw_power_cap",), NANO),
    Field(269, metrics.GPU_CLOCK_EVENT_SECONDS, ("sw_thermal_slowdown",), NANO),
    Field(270, metrics.GPU_CLOCK_EVENT_SECONDS, ("hw_thermal_slowdown",), NANO),
    Field(271, metrics.GPU_CLOCK_EVENT_SECONDS, ("hw_power_brake",), NANO),
    Field(76, metrics.GPU_CLOCK_EVENT_SECONDS, ("sync_boost",), NANO, if_nonzero=True),
    Field(189, metrics.GPU_POWER_LIMIT, ("default",), MILLI),
    Field(83, metrics.GPU_ENERGY, (), MILLI),
    Field(82, metrics.GPU_TEMPERATURE, ("memory",)),
    Field(5, metrics.GPU_ECC_ERRORS, ("corrected", "aggregate")),
    Field(6, metrics.GPU_ECC_ERRORS, ("uncorrected", "aggregate")),
    Field(3, metrics.GPU_ECC_ERRORS, ("corrected", "volatile"), if_nonzero=True),
    Field(4, metrics.GPU_ECC_ERRORS, ("uncorrected", "volatile")),
    Field(142, metrics.GPU_REMAPPED_ROWS, ("corrected",), if_nonzero=True),
    Field(143, metrics.GPU_REMAPPED_ROWS, ("uncorrected",)),
    Field(144, metrics.GPU_REMAP_PENDING),
    Field(145, metrics.GPU_REMAP_FAILURE),
    Field(29, metrics.GPU_RETIRED_PAGES, ("corrected",)),
    Field(30, metrics.GPU_RETIRED_PAGES, ("uncorrected",)),
    Field(31, metrics.GPU_RETIRED_PENDING),
    Field(94, metrics.GPU_PCIE_REPLAYS),
    Field(173, metrics.GPU_PCIE_ERRORS, ("correctable",), if_nonzero=True),
    Field(179, metrics.GPU_PCIE_ERRORS, ("nonfatal",), if_nonzero=True),
    Field(180, metrics.GPU_PCIE_ERRORS, ("fatal",), if_nonzero=True),
    Field(176, metrics.GPU_PCIE_ERRORS, ("bad_tlp",), if_nonzero=True),
    Field(178, metrics.GPU_PCIE_ERRORS, ("bad_dllp",), if_nonzero=True),
    Field(175, metrics.GPU_PCIE_ERRORS, ("receiver",), if_nonzero=True),
    Field(182, metrics.GPU_PCIE_ERRORS, ("lcrc",), if_nonzero=True),
    Field(197, metrics.GPU_PCIE_TRANSMIT),
    Field(198, metrics.GPU_PCIE_RECEIVE),
    Field(138, metrics.GPU_NVLINK_TRANSMIT, (), KIBI, ALL_LINKS),
    Field(139, metrics.GPU_NVLINK_RECEIVE, (), KIBI, ALL_LINKS),
    Field(38, metrics.GPU_NVLINK_ERRORS, ("crc_flit",)),
    Field(45, metrics.GPU_NVLINK_ERRORS, ("crc_data",), if_nonzero=True),
    Field(52, metrics.GPU_NVLINK_ERRORS, ("replay",), if_nonzero=True),
    Field(59, metrics.GPU_NVLINK_ERRORS, ("recovery",), if_nonzero=True),
    # The fifth generation has separate counters, and returns not supported for the fields above.
    Field(202, metrics.GPU_NVLINK_TRANSMIT, (), 1.0, ALL_LINKS),
    Field(204, metrics.GPU_NVLINK_RECEIVE, (), 1.0, ALL_LINKS),
    Field(208, metrics.GPU_NVLINK_ERRORS, ("receive",), 1.0, ALL_LINKS),
    Field(
        211,
        metrics.GPU_NVLINK_ERRORS,
        ("local_link_integrity",),
        1.0,
        ALL_LINKS,
        if_nonzero=True,
    ),
    Field(213, metrics.GPU_NVLINK_ERRORS, ("recovery",), 1.0, ALL_LINKS, if_nonzero=True),
    Field(214, metrics.GPU_NVLINK_ERRORS, ("recovery_failed",), 1.0, ALL_LINKS, if_nonzero=True),
    Field(221, metrics.GPU_NVLINK_ERRORS, ("symbol",), 1.0, ALL_LINKS, if_nonzero=True),
)
"""Read in every run, in one call. Of two fields of the same series, the first that answers
counts."""

RECOVERY_FIELD = 230
RECOVERY_ACTIONS: Mapping[int, str] = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
"""NVML_GPU_RECOVERY_ACTION_*."""

CLOCK_EVENT_BITS: Mapping[int, str] = {
    4: "sw_power_cap",
    32: "sw_thermal_slowdown",
    64: "hw_thermal_slowdown",
    128: "hw_power_brake",
}
"""nvmlClocksEventReason bits that are always exported, as 0 or 1."""

RARE_CLOCK_EVENT_BITS: Mapping[int, str] = {
    1: "idle",
    2: "application_clocks",
    8: "hw_slowdown",
    16: "sync_boost",
    256: "display_clock",
    512: "board_limit",
    1024: "reliability",
}
"""Bits that are exported once they have been seen."""

ACTIVITY_METRICS: Mapping[int, Metric] = {
    2: metrics.GPU_SM_ACTIVE,
    5: metrics.GPU_TENSOR_ACTIVE,
    10: metrics.GPU_DRAM_ACTIVE,
}
"""NVML_GPM_METRIC_* numbers."""

INSTEAD: Mapping[str, str] = {
    metrics.GPU_RETIRED_PAGES.name: metrics.GPU_REMAPPED_ROWS.name,
    metrics.GPU_RETIRED_PENDING.name: metrics.GPU_REMAP_PENDING.name,
    metrics.GPU_MEMORY_ACTIVITY.name: metrics.GPU_DRAM_ACTIVE.name,
}
"""A metric is not reported as unsupported if the other one of its pair exists."""

GROUPS: Mapping[str, str] = {
    metric.name: group
    for group, members in {
        "activity": tuple(ACTIVITY_METRICS.values()),
        "memory_retirement": (
            metrics.GPU_RETIRED_PAGES,
            metrics.GPU_RETIRED_PENDING,
            metrics.GPU_REMAPPED_ROWS,
            metrics.GPU_REMAP_PENDING,
            metrics.GPU_REMAP_FAILURE,
        ),
        "nvlink": (
            metrics.GPU_NVLINK_TRANSMIT,
            metrics.GPU_NVLINK_RECEIVE,
            metrics.GPU_NVLINK_ERRORS,
            metrics.GPU_NVLINKS_UP,
        ),
        "pcie_counters": (
            metrics.GPU_PCIE_ERRORS,
            metrics.GPU_PCIE_TRANSMIT,
            metrics.GPU_PCIE_RECEIVE,
        ),
        "utilization": (metrics.GPU_UTILIZATION, metrics.GPU_MEMORY_ACTIVITY),
    }.items()
    for metric in members
}
"""Metrics that are reported as unsupported together, so that a card without NVLink says so once and
not four times; every other metric is reported by its own name."""

FABRIC_STATES: Mapping[int, str] = {1: "not_started", 2: "in_progress", 3: "completed"}

FABRIC_CHECKS: Sequence[tuple[str, int, int]] = (
    ("degraded_bandwidth", 0, 3),
    ("route_recovery", 2, 3),
    ("route_unhealthy", 4, 3),
    ("access_timeout_recovery", 6, 3),
)
"""Name, shift and mask in the health mask; a value of 1 is true, 2 false, 0 not checked."""

CONFIGURATION_SHIFT, CONFIGURATION_MASK = 8, 15  # 0 not checked, 1 none, above 1: what is wrong


@dataclass(frozen=True, slots=True)
class Reading:
    """One call and its conversion.

    Args:
        metrics: the metrics that it yields, so that a refused call makes them unsupported.
        take: makes the call; may raise `NvmlError`.
    """

    metrics: tuple[Metric, ...]
    take: Callable[[Device], Iterator[Value]]


def _utilization(device: Device) -> Iterator[Value]:
    gpu, memory = device.utilization()
    yield metrics.GPU_UTILIZATION, (), gpu * PERCENT
    yield metrics.GPU_MEMORY_ACTIVITY, (), memory * PERCENT


def _memory(device: Device) -> Iterator[Value]:
    total, used = device.memory()
    yield metrics.GPU_MEMORY_TOTAL, (), total
    yield metrics.GPU_MEMORY_USED, (), used


def _clocks(device: Device) -> Iterator[Value]:
    yield metrics.GPU_CLOCK, ("sm",), device.clock(CLOCK_SM) * MEGA
    yield metrics.GPU_CLOCK, ("memory",), device.clock(CLOCK_MEMORY) * MEGA


def _max_clock(device: Device) -> Iterator[Value]:
    yield metrics.GPU_CLOCK_MAX, ("sm",), device.max_clock(CLOCK_SM) * MEGA


def _power(device: Device) -> Iterator[Value]:
    yield metrics.GPU_POWER, (), device.power() * MILLI


def _power_limit(device: Device) -> Iterator[Value]:
    yield metrics.GPU_POWER_LIMIT, ("enforced",), device.power_limit() * MILLI


def _temperature(device: Device) -> Iterator[Value]:
    degrees = device.temperature()
    if degrees <= MAX_TEMPERATURE:
        yield metrics.GPU_TEMPERATURE, ("core",), degrees


def _margin(device: Device) -> Iterator[Value]:
    margin = device.temperature_margin()
    if abs(margin) <= MAX_TEMPERATURE:
        yield metrics.GPU_TEMPERATURE_MARGIN, (), margin


def _sram(device: Device) -> Iterator[Value]:
    yield metrics.GPU_SRAM_THRESHOLD, (), int(device.sram_threshold_exceeded())


def _pcie(device: Device) -> Iterator[Value]:
    generation, width = device.pcie_link()
    if width <= MAX_PCIE_LANES:
        yield metrics.GPU_PCIE_GENERATION, (), generation
        yield metrics.GPU_PCIE_WIDTH, (), width


def _pcie_max(device: Device) -> Iterator[Value]:
    generation, width = device.pcie_link_max()
    yield metrics.GPU_PCIE_GENERATION_MAX, (), generation
    yield metrics.GPU_PCIE_WIDTH_MAX, (), width


def _fabric(device: Device) -> Iterator[Value]:
    state, status, health = device.fabric()
    if state not in FABRIC_STATES:
        return
    outcome = "success" if status == 0 else "error"
    yield metrics.GPU_FABRIC_STATE, (FABRIC_STATES[state], outcome), 1
    for check, shift, mask in FABRIC_CHECKS:
        found = health >> shift & mask
        if found:
            yield metrics.GPU_FABRIC_UNHEALTHY, (check,), int(found == 1)
    wrong = health >> CONFIGURATION_SHIFT & CONFIGURATION_MASK
    if wrong:
        yield metrics.GPU_FABRIC_UNHEALTHY, ("configuration",), int(wrong > 1)


READINGS: tuple[Reading, ...] = (
    Reading((metrics.GPU_UTILIZATION, metrics.GPU_MEMORY_ACTIVITY), _utilization),
    Reading((metrics.GPU_MEMORY_TOTAL, metrics.GPU_MEMORY_USED), _memory),
    Reading((metrics.GPU_CLOCK,), _clocks),
    Reading((metrics.GPU_CLOCK_MAX,), _max_clock),
    Reading((metrics.GPU_POWER,), _power),
    Reading((metrics.GPU_POWER_LIMIT,), _power_limit),
    Reading((metrics.GPU_TEMPERATURE,), _temperature),
    Reading((metrics.GPU_TEMPERATURE_MARGIN,), _margin),
    Reading((metrics.GPU_SRAM_THRESHOLD,), _sram),
    Reading((metrics.GPU_PCIE_GENERATION, metrics.GPU_PCIE_WIDTH), _pcie),
    Reading((metrics.GPU_PCIE_GENERATION_MAX, metrics.GPU_PCIE_WIDTH_MAX), _pcie_max),
    Reading((metrics.GPU_FABRIC_STATE,), _fabric),
)
"""Calls made in every run, each yielding one or a few values."""
