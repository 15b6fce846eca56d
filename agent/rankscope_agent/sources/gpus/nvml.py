"""The calls to NVIDIA's management library that the agent makes, as Protocols.

The real library and the simulated node implement them. Units are NVML's own; `readings` converts
them to ours. Calls that block the driver are left out on purpose: PCIe throughput takes 20 ms of
sampling per counter, and lists of processes take milliseconds under the driver's lock.

Numbers and meanings are those of nvml.h and nvidia-ml-py 13.615.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

SUCCESS = 0
UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
NOT_READY = 27
UNKNOWN = 999

CODE_NAMES: Mapping[int, str] = {
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    5: "already_initialized",
    6: "not_found",
    7: "insufficient_size",
    8: "insufficient_power",
    9: "driver_not_loaded",
    10: "timeout",
    11: "irq_issue",
    12: "library_not_found",
    13: "function_not_found",
    14: "corrupted_inforom",
    15: "gpu_is_lost",
    16: "reset_required",
    17: "operating_system",
    18: "library_driver_mismatch",
    19: "in_use",
    20: "memory",
    21: "no_data",
    23: "insufficient_resources",
    24: "frequency_not_supported",
    25: "argument_version_mismatch",
    26: "deprecated",
    27: "not_ready",
    28: "gpu_not_found",
    29: "invalid_state",
    999: "unknown",
}
"""Names of NVML's return codes; all others are `other`, so that labels stay bounded."""

UNSUPPORTED_CODES: Mapping[int, str] = {
    2: "unsupported",  # the driver is older than the requested field or structure
    3: "unsupported",
    4: "no_permission",
    13: "unsupported",
    25: "unsupported",
    26: "unsupported",
}
"""Answers that will not change, and what the agent calls them."""

GONE_CODES = frozenset({GPU_IS_LOST, 28})
"""Answers for a GPU that is no longer on the bus."""

CLOSED_CODES = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
"""Answers that invalidate every handle: the driver was unloaded or replaced."""

CLOCK_SM = 1
CLOCK_MEMORY = 2

NVLINK_COUNTERS: Mapping[int, str] = {0: "replay", 1: "recovery", 2: "crc_flit", 3: "crc_data"}
"""nvmlNvLinkErrorCounter_t."""

MAX_NVLINKS = 18
"""Links of one GPU up to Blackwell; NVML 13 reserves 36 indices."""

ALL_LINKS = 2**32 - 1
"""The scope of a field value for the sum over all NVLinks (UINT_MAX in nvml.h)."""

EVENT_XID = 8
EVENT_NAMES: Mapping[int, str] = {
    2: "double_bit_ecc_error",
    512: "single_bit_ecc_error_storm",
    1024: "dram_retirement",
    2048: "dram_retirement_failure",
    4096: "non_fatal_poison_error",
    8192: "fatal_poison_error",
    16384: "gpu_unavailable",
    32768: "recovery_action",
}
"""nvmlEventType*: the events registered for in addition to Xids. Clock, power and single ECC errors
are left out: they are frequent, and counters cover them."""

FieldRequest = tuple[int, int]
"""Field id and scope; the scope is a link's index, `ALL_LINKS`, or 0 if there is none."""


class NvmlError(Exception):
    """A call returned something other than success."""

    def __init__(self, code: int, call: str) -> None:
        super().__init__(f"{call}: {code_name(code)} ({code})")
        self.code = code
        self.call = call


def code_name(code: int) -> str:
    """Return a return code's name from a closed vocabulary."""
    return CODE_NAMES.get(code, "other")


@dataclass(frozen=True, slots=True)
class FieldValue:
    """The answer to one field request: its own return code and, on success, a number."""

    code: int
    value: float


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a GPU, as known when it was first seen; unknown parts are empty.

    Args:
        gpu: the driver's index, as nvidia-smi shows it.
        pci: domain, bus and device, as in `0000:3b:00`.
    """

    gpu: str
    uuid: str
    pci: str
    vendor: str = "nvidia"
    model: str = ""
    serial: str = ""
    driver: str = ""
    vbios: str = ""

    @property
    def labels(self) -> tuple[str, str, str]:
        """The labels that every series of the GPU carries."""
        return self.gpu, self.uuid, self.pci


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG device: its instances' ids, its profile such as `1g.10gb`, its memory in bytes.

    Args:
        uuid: empty if the driver does not tell.
    """

    gpu_instance: int
    compute_instance: int
    profile: str
    memory_total: int
    memory_used: int
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: the index of the GPU in the session, nvmlEventType, and its data (the Xid)."""

    index: int
    kind: int
    data: int


class Device(Protocol):
    """One GPU; every method may raise `NvmlError` or never return."""

    def identity(self) -> Identity:
        """Return its identity."""
        ...

    def fields(self, requests: Sequence[FieldRequest]) -> Sequence[FieldValue]:
        """Return the answer to each request, in order, from one call."""
        ...

    def utilization(self) -> tuple[int, int]:
        """Return the percentages of time with a running kernel, and with memory traffic."""
        ...

    def memory(self) -> tuple[int, int]:
        """Return total and used bytes."""
        ...

    def clock(self, domain: int) -> int:
        """Return the clock in MHz."""
        ...

    def max_clock(self, domain: int) -> int:
        """Return the highest clock in MHz."""
        ...

    def clock_event_reasons(self) -> int:
        """Return the mask of nvmlClocksEventReason bits."""
        ...

    def power(self) -> int:
        """Return milliwatts."""
        ...

    def power_limit(self) -> int:
        """Return the enforced limit in milliwatts."""
        ...

    def temperature(self) -> int:
        """Return the core temperature in degrees Celsius."""
        ...

    def temperature_margin(self) -> int:
        """Return the degrees Celsius left until slowdown."""
        ...

    def sram_threshold_exceeded(self) -> bool:
        """Return True if SRAM errors have reached the vendor's criterion for replacement."""
        ...

    def pcie_link(self) -> tuple[int, int]:
        """Return the current generation and width."""
        ...

    def pcie_link_max(self) -> tuple[int, int]:
        """Return the generation and width that GPU and slot support."""
        ...

    def nvlink_active(self, link: int) -> bool:
        """Return True if a link is up."""
        ...

    def nvlink_errors(self, link: int, counter: int) -> int:
        """Return one of the `NVLINK_COUNTERS` of a link."""
        ...

    def fabric(self) -> tuple[int, int, int]:
        """Return the state, the return code of the registration, and the mask of health checks."""
        ...

    def mig_enabled(self) -> bool:
        """Return True if the GPU is currently partitioned."""
        ...

    def mig_instances(self) -> Sequence[MigInstance]:
        """Return the existing MIG devices."""
        ...

    def activity(self, metrics: Sequence[int], gpu_instance: int | None) -> Mapping[int, float]:
        """Return GPM metrics in percent since the previous call; empty at the first call."""
        ...


class Nvml(Protocol):
    """The library; one session at a time. Every method may raise `NvmlError` or never return."""

    def open(self) -> None:
        """Start a session."""
        ...

    def close(self) -> None:
        """End the session, which invalidates all of its devices."""
        ...

    def count(self) -> int:
        """Return the number of GPUs in this session."""
        ...

    def device(self, index: int) -> Device:
        """Return a GPU."""
        ...

    def wait_event(self, timeout_seconds: float) -> Event | None:
        """Wait for an event of any GPU of this session; called by one thread only.

        Each call registers for those of the GPUs that have answered since, if they report any.
        """
        ...

    def bound(self) -> frozenset[str] | None:
        """Return the PCI addresses of the GPUs that the driver has now; None if unknown.

        They change when a GPU is plugged in or given to a virtual machine, or when the driver is
        reloaded, none of which a session notices.
        """
        ...

    def given(self) -> frozenset[str]:
        """Return those of the driver's GPUs that the agent may use, so that a session has them.

        Others may be excluded, or denied to the agent's container or job. May not return.
        """
        ...

    def on_bus(self) -> frozenset[str]:
        """Return the PCI addresses of the GPUs on the node's bus, with or without a driver."""
        ...
