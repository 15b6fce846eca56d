"""Implements the interface of `nvml` with NVIDIA's library, through nvidia-ml-py.

This module converts the library's structures to plain numbers and decides nothing else. Whether the
installed library supports a call is determined by making the call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rankscope_agent.contract.kernel.events import pci_address
from rankscope_agent.sources.gpus.bus import gpus_given, gpus_of_driver, gpus_on_bus
from rankscope_agent.sources.gpus.gpm import GpmSamples
from rankscope_agent.sources.gpus.nvml import (
    EVENT_NAMES,
    EVENT_XID,
    FUNCTION_NOT_FOUND,
    NOT_SUPPORTED,
    SUCCESS,
    Device,
    Event,
    FieldRequest,
    FieldValue,
    Identity,
    MigInstance,
    NvmlError,
)

MAX_MIG_DEVICES = 7
"""The result of nvmlDeviceGetMaxMigDeviceCount on every GPU so far."""

VALUE_MEMBERS: Mapping[int, str] = {
    0: "dVal",
    1: "uiVal",
    2: "ulVal",
    3: "ullVal",
    4: "sllVal",
    5: "siVal",
    6: "usVal",
}
"""nvmlValueType_t, and the member of the union that holds such a value."""


class NvidiaLibrary:
    """The library; see `nvml.Nvml`.

    Args:
        pynvml: the module nvidia-ml-py.
        procfs: the node's /proc.
        sysfs: the node's /sys.
        device_files: the folder of /dev/nvidia0 and its like.
    """

    def __init__(
        self, pynvml: Any, procfs: Path, sysfs: Path, device_files: Path = Path("/dev")
    ) -> None:
        self._pynvml = pynvml
        self._procfs = procfs
        self._sysfs = sysfs
        self._device_files = device_files
        self._driver = ""
        self._handles: list[Any] = []
        self._devices: list[NvidiaDevice] = []
        self._event_set: Any = None
        self._requested = 0  # handles for whose events a registration was requested

    def open(self) -> None:
        """Start a session."""
        self._handles = []
        with self._errors("open"):
            self._pynvml.nvmlInit()
            self._driver = _text(self._pynvml.nvmlSystemGetDriverVersion())

    def close(self) -> None:
        """End the session."""
        event_set, self._event_set = self._event_set, None
        devices, self._devices = self._devices, []
        for device in devices:
            device.free()
        # A failure to release something must not keep the session open: the next one would not be
        # new.
        with suppress(self._pynvml.NVMLError):
            if event_set is not None:
                self._pynvml.nvmlEventSetFree(event_set)
        with self._errors("close"):
            self._pynvml.nvmlShutdown()

    def count(self) -> int:
        """Return the number of GPUs."""
        with self._errors("count"):
            return int(self._pynvml.nvmlDeviceGetCount())

    def device(self, index: int) -> Device:
        """Return a GPU."""
        with self._errors("device"):
            handle = self._pynvml.nvmlDeviceGetHandleByIndex(index)
        self._handles.append((index, handle))
        device = NvidiaDevice(self._pynvml, handle, index, self._driver)
        self._devices.append(device)
        return device

    def bound(self) -> frozenset[str] | None:
        """Return the PCI addresses in the driver's list; None if there is no list."""
        return gpus_of_driver(self._procfs)

    def given(self) -> frozenset[str]:
        """Return those in the driver's list that this process may use.

        A GPU that `nvidia-smi drain` drains stays in that list, but new sessions do not have it.
        """
        listed = gpus_given(self._procfs, self._device_files)
        return frozenset(pci for pci in listed if not self._is_drained(pci))

    def _is_drained(self, pci: str) -> bool:
        """Return True if the driver says so; it is asked by address, as there is no handle."""
        domain, bus, device = (int(part, 16) for part in pci.split(":"))
        place = self._pynvml.nvmlPciInfo_t(domain=domain, bus=bus, device=device)
        place.busIdLegacy = f"{domain & 0xFFFF:04X}:{bus:02X}:{device:02X}.0".encode()
        place.busId = f"{domain:08X}:{bus:02X}:{device:02X}.0".encode()
        with suppress(self._pynvml.NVMLError):
            return bool(self._pynvml.nvmlDeviceQueryDrainState(place))
        return False

    def on_bus(self) -> frozenset[str]:
        """Return the PCI addresses of NVIDIA's GPUs in sysfs."""
        return gpus_on_bus(self._sysfs)

    def wait_event(self, timeout_seconds: float) -> Event | None:
        """Wait for an event of the GPUs that have answered so far."""
        with self._errors("events"):
            self._register()
            data = self._pynvml.nvmlEventSetWait_v2(self._event_set, int(timeout_seconds * 1000))
        address = _address(data.device)
        for index, handle in self._handles:
            if _address(handle) == address:
                return Event(index, int(data.eventType), int(data.eventData))
        return None

    def _register(self) -> None:
        """Register each new GPU for those of the wanted events that it supports.

        One unsupported bit would make the whole registration fail, and one GPU that refuses must
        not cost the other GPUs their events.

        Raises:
            NvmlError: no GPU supports any.
        """
        event_set = self._event_set
        if event_set is None:
            event_set, self._requested = self._pynvml.nvmlEventSetCreate(), 0
        new = self._handles[self._requested :]
        self._requested += len(new)
        wanted = EVENT_XID | sum(EVENT_NAMES)
        registered = [self._register_gpu(handle, event_set, wanted) for _, handle in new]
        if self._event_set is None and not any(registered):
            self._pynvml.nvmlEventSetFree(event_set)
            raise NvmlError(NOT_SUPPORTED, "events")
        self._event_set = event_set

    def _register_gpu(self, handle: Any, event_set: Any, wanted: int) -> bool:
        try:
            mask = self._pynvml.nvmlDeviceGetSupportedEventTypes(handle) & wanted
            self._pynvml.nvmlDeviceRegisterEvents(handle, mask, event_set)
        except self._pynvml.NVMLError:
            return False
        return True

    def _errors(self, call: str) -> Any:
        return errors_of(self._pynvml, call)


@contextmanager
def errors_of(pynvml: Any, call: str) -> Iterator[None]:
    """Convert the library's errors to ours; a missing call counts as unsupported.

    Raises:
        NvmlError: the library returned an error, or lacks the call.
    """
    try:
        yield
    except pynvml.NVMLError as error:
        raise NvmlError(int(error.value), call) from None
    except AttributeError:  # nvidia-ml-py is older than the call or a structure of it
        raise NvmlError(FUNCTION_NOT_FOUND, call) from None


class NvidiaDevice:
    """One GPU; see `nvml.Device`."""

    def __init__(self, pynvml: Any, handle: Any, index: int, driver: str) -> None:
        self._pynvml = pynvml
        self._handle = handle
        self._index = index
        self._driver = driver
        self._activity: dict[int | None, GpmSamples] = {}

    def identity(self) -> Identity:
        """Return its identity; serial and VBIOS are empty if the GPU does not report them."""
        module, handle = self._pynvml, self._handle
        with errors_of(module, "identity"):
            uuid = _text(module.nvmlDeviceGetUUID(handle))
            pci = pci_address(_text(module.nvmlDeviceGetPciInfo(handle).busId))
        return Identity(
            gpu=str(self._index),
            uuid=uuid,
            pci=pci or "unknown",
            model=self._optional(lambda: module.nvmlDeviceGetName(handle)),
            serial=self._optional(lambda: module.nvmlDeviceGetSerial(handle)),
            driver=self._driver,
            vbios=self._optional(lambda: module.nvmlDeviceGetVbiosVersion(handle)),
        )

    def _optional(self, call: Callable[[], Any]) -> str:
        try:
            return _text(call())
        except (self._pynvml.NVMLError, AttributeError, UnicodeDecodeError):
            return ""

    def fields(self, requests: Sequence[FieldRequest]) -> Sequence[FieldValue]:
        """Return the answer to each request."""
        with errors_of(self._pynvml, "fields"):
            answers = self._pynvml.nvmlDeviceGetFieldValues(self._handle, list(requests))
        return [_field(answer) for answer in answers]

    def utilization(self) -> tuple[int, int]:
        """Return the percentages of time with a running kernel, and with memory traffic."""
        with errors_of(self._pynvml, "utilization"):
            rates = self._pynvml.nvmlDeviceGetUtilizationRates(self._handle)
            return int(rates.gpu), int(rates.memory)

    def memory(self) -> tuple[int, int]:
        """Return total and used bytes; version 1 of the call includes the driver's own memory."""
        module = self._pynvml
        with errors_of(module, "memory"):
            info = module.nvmlDeviceGetMemoryInfo(self._handle, version=module.nvmlMemory_v2)
            return int(info.total), int(info.used)

    def clock(self, domain: int) -> int:
        """Return the clock in MHz."""
        with errors_of(self._pynvml, "clock"):
            return int(self._pynvml.nvmlDeviceGetClockInfo(self._handle, domain))

    def max_clock(self, domain: int) -> int:
        """Return the highest clock in MHz."""
        with errors_of(self._pynvml, "max_clock"):
            return int(self._pynvml.nvmlDeviceGetMaxClockInfo(self._handle, domain))

    def clock_event_reasons(self) -> int:
        """Return the mask of reasons; drivers before 535 use another name for it."""
        module = self._pynvml
        with errors_of(module, "clock_event_reasons"):
            try:
                return int(module.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
            except module.NVMLError as error:
                if error.value != FUNCTION_NOT_FOUND:
                    raise
                return int(module.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def power(self) -> int:
        """Return milliwatts."""
        with errors_of(self._pynvml, "power"):
            return int(self._pynvml.nvmlDeviceGetPowerUsage(self._handle))

    def power_limit(self) -> int:
        """Return the enforced limit in milliwatts."""
        with errors_of(self._pynvml, "power_limit"):
            return int(self._pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle))

    def temperature(self) -> int:
        """Return the core temperature in degrees Celsius."""
        with errors_of(self._pynvml, "temperature"):
            return int(self._pynvml.nvmlDeviceGetTemperature(self._handle, 0))

    def temperature_margin(self) -> int:
        """Return the degrees Celsius left until slowdown."""
        with errors_of(self._pynvml, "temperature_margin"):
            return int(self._pynvml.nvmlDeviceGetMarginTemperature(self._handle))

    def sram_threshold_exceeded(self) -> bool:
        """Return True if SRAM errors have reached the vendor's criterion for replacement."""
        module = self._pynvml
        with errors_of(module, "sram_threshold_exceeded"):
            status = module.c_nvmlEccSramErrorStatus_v1_t()
            module.nvmlDeviceGetSramEccErrorStatus(self._handle, ctypes.byref(status))
            return bool(status.bThresholdExceeded)

    def pcie_link(self) -> tuple[int, int]:
        """Return the current generation and width."""
        module = self._pynvml
        with errors_of(module, "pcie_link"):
            generation = module.nvmlDeviceGetCurrPcieLinkGeneration(self._handle)
            return int(generation), int(module.nvmlDeviceGetCurrPcieLinkWidth(self._handle))

    def pcie_link_max(self) -> tuple[int, int]:
        """Return the generation and width that GPU and slot support."""
        module = self._pynvml
        with errors_of(module, "pcie_link_max"):
            generation = module.nvmlDeviceGetMaxPcieLinkGeneration(self._handle)
            return int(generation), int(module.nvmlDeviceGetMaxPcieLinkWidth(self._handle))

    def nvlink_active(self, link: int) -> bool:
        """Return True if a link is up."""
        with errors_of(self._pynvml, "nvlink_active"):
            return bool(self._pynvml.nvmlDeviceGetNvLinkState(self._handle, link))

    def nvlink_errors(self, link: int, counter: int) -> int:
        """Return one of the error counters of a link."""
        with errors_of(self._pynvml, "nvlink_errors"):
            return int(self._pynvml.nvmlDeviceGetNvLinkErrorCounter(self._handle, link, counter))

    def fabric(self) -> tuple[int, int, int]:
        """Return state, status and health, from version 2 of the structure, available since 535."""
        module = self._pynvml
        with errors_of(module, "fabric"):
            info = module.c_nvmlGpuFabricInfo_v2_t()
            module.nvmlDeviceGetGpuFabricInfoV(self._handle, ctypes.byref(info))
            return int(info.state), int(info.status), int(info.healthMask)

    def mig_enabled(self) -> bool:
        """Return True if the GPU is currently partitioned."""
        with errors_of(self._pynvml, "mig_enabled"):
            return bool(self._pynvml.nvmlDeviceGetMigMode(self._handle)[0])

    def mig_instances(self) -> Sequence[MigInstance]:
        """Return the existing MIG devices; unused indices return not found."""
        found = []
        for number in range(MAX_MIG_DEVICES):
            with errors_of(self._pynvml, "mig_instances"):
                try:
                    handle = self._pynvml.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, number)
                except self._pynvml.NVMLError as error:
                    if error.value in {2, 6}:  # returns invalid argument, not not found
                        continue
                    raise
                found.append(self._mig_instance(handle))
        return found

    def _mig_instance(self, handle: Any) -> MigInstance:
        module = self._pynvml
        memory = module.nvmlDeviceGetMemoryInfo(handle)
        # Names end in the profile: "NVIDIA H100 80GB HBM3 MIG 1g.10gb".
        name = self._optional(lambda: module.nvmlDeviceGetName(handle))
        return MigInstance(
            gpu_instance=int(module.nvmlDeviceGetGpuInstanceId(handle)),
            compute_instance=int(module.nvmlDeviceGetComputeInstanceId(handle)),
            profile=name.rpartition(" MIG ")[2] if " MIG " in name else "",
            memory_total=int(memory.total),
            memory_used=int(memory.used),
            uuid=self._optional(lambda: module.nvmlDeviceGetUUID(handle)),
        )

    def activity(self, metrics: Sequence[int], gpu_instance: int | None) -> Mapping[int, float]:
        """Return GPM metrics in percent since the previous call; empty at the first call."""
        with errors_of(self._pynvml, "activity"):
            if gpu_instance not in self._activity:
                if not self._pynvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                    raise NvmlError(NOT_SUPPORTED, "activity")
                self._activity[gpu_instance] = GpmSamples(self._pynvml, metrics)
            return self._activity[gpu_instance].read(self._handle, gpu_instance)

    def free(self) -> None:
        """Free what the library has allocated for this GPU, which is not read any more."""
        while self._activity:
            self._activity.popitem()[1].free()


def _field(answer: Any) -> FieldValue:
    if answer.nvmlReturn != SUCCESS:
        return FieldValue(int(answer.nvmlReturn), 0)
    member = VALUE_MEMBERS.get(int(answer.valueType))
    if member is None or not hasattr(answer.value, member):
        return FieldValue(NOT_SUPPORTED, 0)
    return FieldValue(SUCCESS, getattr(answer.value, member))


def _text(value: str | bytes) -> str:
    """Read a text of the library; older versions of the module return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _address(handle: Any) -> int | None:
    """Return the address in a handle, which is the same for every handle of a GPU."""
    return ctypes.cast(handle, ctypes.c_void_p).value
