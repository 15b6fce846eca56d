"""The management library of a simulated node, with the interface of `gpus.nvml`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence

from rankscope_agent.settings.simulation import MODELS, Simulation
from rankscope_agent.sources.gpus.nvml import (
    ALL_LINKS,
    CLOCK_SM,
    DRIVER_NOT_LOADED,
    EVENT_XID,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    NVLINK_COUNTERS,
    SUCCESS,
    Device,
    Event,
    FieldRequest,
    FieldValue,
    Identity,
    MigInstance,
    NvmlError,
)
from rankscope_agent.sources.gpus.simulation import physics
from rankscope_agent.sources.gpus.simulation.physics import State

DRIVER = "590.48.01"
MEBI = 1 << 20
MIG_DEVICES = 7
"""Instances of the smallest profile, with an eighth of the memory each."""

BAD_LINK = 3
"""The index of the NVLink with errors, if any."""

BAD_LINK_TRAFFIC = 0.3
"""The share of its siblings' traffic that this link still carries."""

NANO = 10**9
STORM_EVENT = 512
NAMESPACE = uuid.UUID("6f1d7c1e-3a52-5b0e-9d0f-72616e6b7363")
"""Namespace of the generated UUIDs: the same GPU of the same simulated node always has the same
one."""


class SimulatedNvml:
    """A simulated library; see `gpus.nvml.Nvml`.

    Args:
        simulation: the node.
        clock: returns the time in seconds.
        node: name of the node, which makes its GPUs' UUIDs differ from those of others.
    """

    def __init__(
        self, simulation: Simulation, clock: Callable[[], float], node: str = "simulated"
    ) -> None:
        self.simulation = simulation
        self._clock = clock
        self._node = node
        self._begin = clock()
        self._pending = _events(simulation)
        self._lock = threading.Lock()
        self._stuck = threading.Event()
        self._quiet = threading.Event()  # never set: makes a wait that nothing can cut short
        gpus = range(simulation.count)
        self._reloads = any(fault.reloads for at in gpus for fault in simulation.fault(at))

    @property
    def elapsed(self) -> float:
        """Seconds since the simulation began."""
        return self._clock() - self._begin

    def release(self) -> None:
        """Let calls that hang return."""
        self._stuck.set()

    def wait_stuck(self) -> None:
        """Hang until `release`."""
        self._stuck.wait()

    def check(self, call: str) -> None:
        """Check whether the driver is loaded.

        Raises:
            NvmlError: it is being reloaded.
        """
        if self._reloads and physics.away(self.elapsed):
            raise NvmlError(DRIVER_NOT_LOADED, call)

    def open(self) -> None:
        """Start a session."""
        self.check("open")

    def close(self) -> None:
        """End the session."""

    def count(self) -> int:
        """Return the number of GPUs."""
        self.check("count")
        return self.simulation.count

    def device(self, index: int) -> Device:
        """Return a GPU."""
        self.check("device")
        return SimulatedDevice(self, index, self._node)

    def bound(self) -> frozenset[str] | None:
        """Return the GPUs of the driver: all of them."""
        return frozenset(pci_address(index) for index in range(self.simulation.count))

    def given(self) -> frozenset[str]:
        """Return the GPUs that the agent may use: all of them."""
        return self.bound() or frozenset()

    def on_bus(self) -> frozenset[str]:
        """Return the GPUs on the bus: all of them."""
        return self.bound() or frozenset()

    def wait_event(self, timeout_seconds: float) -> Event | None:
        """Return the next event, each one once; wait if there is none."""
        self.check("events")
        with self._lock:
            if self._pending:
                return self._pending.pop(0)
        self._quiet.wait(timeout_seconds)
        return None


def _events(simulation: Simulation) -> list[Event]:
    """Return the events that the driver reports at the first call."""
    found = []
    for index in range(simulation.count):
        for fault in simulation.fault(index):
            if fault.xid:
                found.append(Event(index, EVENT_XID, fault.xid))
            if fault.ecc:
                found.append(Event(index, STORM_EVENT, 0))
    return found


def pci_address(index: int) -> str:
    """Return the address of a simulated GPU: one behind each PCIe switch of a usual board."""
    return f"0000:{0x1B + 0x10 * index & 0xFF:02x}:00"


def gpu_uuid(node: str, index: int) -> str:
    """Return the UUID of a simulated node's GPU."""
    return f"GPU-{uuid.uuid5(NAMESPACE, f'{node}/{index}')}"


def mig_uuid(node: str, index: int, number: int) -> str:
    """Return the UUID of a part of a simulated node's GPU."""
    return f"MIG-{uuid.uuid5(NAMESPACE, f'{node}/{index}/{number}')}"


def simulated_gpus(simulation: Simulation, node: str) -> Mapping[str, str]:
    """Return the UUIDs of a simulated node's GPUs by PCI function."""
    return {f"{pci_address(i)}.0": gpu_uuid(node, i) for i in range(simulation.count)}


class SimulatedDevice:
    """One GPU; see `gpus.nvml.Device`."""

    def __init__(self, library: SimulatedNvml, index: int, node: str) -> None:
        self._library = library
        self._index = index
        self._node = node
        self._simulation = library.simulation
        self._model = MODELS[library.simulation.model]
        self._faults = library.simulation.fault(index)
        self._seen: set[int | None] = set()

    def _state(self, call: str) -> State:
        """Return the current state of the GPU.

        Raises:
            NvmlError: it is lost, or the driver is away.
        """
        self._library.check(call)
        if any(fault.lost for fault in self._faults):
            raise NvmlError(GPU_IS_LOST, call)
        return physics.state(self._simulation, self._index, self._library.elapsed)

    def _needs(self, condition: bool, call: str) -> None:
        if not condition:
            raise NvmlError(NOT_SUPPORTED, call)

    def identity(self) -> Identity:
        """Return its identity; a lost GPU could still be queried before."""
        self._library.check("identity")
        index = self._index
        return Identity(
            gpu=str(index),
            uuid=gpu_uuid(self._node, index),
            pci=pci_address(index),
            model=self._model.name,
            serial=f"165492500{index:04d}",
            driver=DRIVER,
            vbios=self._model.vbios,
        )

    def fields(self, requests: Sequence[FieldRequest]) -> Sequence[FieldValue]:
        """Return the answer to each request."""
        state = self._state("fields")
        known = self._field_values(state)
        answers = []
        for field, scope in requests:
            value = self._link_field(state, field, scope)
            value = known.get(field) if value is None else value
            answers.append(
                FieldValue(NOT_SUPPORTED, 0) if value is None else FieldValue(SUCCESS, int(value))
            )
        return answers

    def _field_values(self, state: State) -> Mapping[int, float]:
        counting = {field for fault in self._faults for field in fault.event_fields}
        events = {
            field: state.fault_seconds * NANO if field in counting else 0.0
            for field in (74, 76, 269, 270, 271)
        }
        general: dict[int, float] = {
            83: state.joules * 1000,
            94: 2.0 + self._index,
            189: self._model.limit_watts * 1000,
            230: float(any(fault.ecc for fault in self._faults)),  # 1 asks for a reset
        }
        return events | general | self._memory_fields(state) | self._pcie_fields(state)

    def _memory_fields(self, state: State) -> dict[int, float]:
        rate = sum(fault.ecc for fault in self._faults)
        corrected = int(rate * state.fault_seconds)
        uncorrected = int(corrected * physics.UNCORRECTED_PART)
        fields: dict[int, float] = {3: corrected, 4: uncorrected, 5: corrected, 6: uncorrected}
        if self._model.hbm:
            fields[82] = state.celsius - physics.MEMORY_COOLER
        if self._model.hbm and not self._simulation.mig:
            fields |= {142: 0, 143: min(uncorrected, 8), 144: int(uncorrected > 0), 145: 0}
        return fields

    def _pcie_fields(self, state: State) -> dict[int, float]:
        if self._model.architecture == "ampere":
            return {}
        moved = physics.PCIE_BYTES * state.busy * state.seconds
        errors: dict[int, float] = dict.fromkeys((173, 175, 176, 178, 179, 180, 182), 0.0)
        return errors | {197: moved * 0.3, 198: moved}

    def _link_field(self, state: State, field: int, scope: int) -> float | None:
        """Return traffic in KiB or errors of links; None for other fields."""
        links = self._model.links
        if not links or field not in {38, 45, 52, 59, 138, 139}:
            return None
        if field in {138, 139}:
            scopes = range(links) if scope == ALL_LINKS else (scope,)
            return sum(self._link_kibi(state, link) for link in scopes)
        return sum(
            self._link_errors(state, link, {52: 0, 59: 1, 38: 2, 45: 3}[field])
            for link in range(links)
        )

    def _link_kibi(self, state: State, link: int) -> float:
        bad = link == BAD_LINK and any(fault.link_errors for fault in self._faults)
        share = BAD_LINK_TRAFFIC if bad else 1.0
        rate = self._model.link_bytes * physics.NVLINK_SHARE * state.busy * share
        return rate * state.seconds / 1024

    def _link_errors(self, state: State, link: int, counter: int) -> int:
        rate = sum(fault.link_errors for fault in self._faults) if link == BAD_LINK else 0.0
        part = {"replay": 0.5, "recovery": 0.01, "crc_flit": 1.0, "crc_data": 0.0}
        return int(rate * part[NVLINK_COUNTERS[counter]] * state.fault_seconds)

    def utilization(self) -> tuple[int, int]:
        """Return the percentages of time with a running kernel, and with memory traffic."""
        state = self._state("utilization")
        self._needs(not self._simulation.mig, "utilization")
        return state.utilization, round(physics.DRAM_SHARE * state.busy)

    def memory(self) -> tuple[int, int]:
        """Return total and used bytes."""
        self._state("memory")
        model = self._model
        used = (model.memory_mib - model.reserved_mib) * 0.86
        return model.memory_mib * MEBI, int(used) * MEBI

    def clock(self, domain: int) -> int:
        """Return the clock in MHz."""
        state = self._state("clock")
        return state.clock_mhz if domain == CLOCK_SM else self._model.memory_mhz

    def max_clock(self, domain: int) -> int:
        """Return the highest clock in MHz."""
        self._state("max_clock")
        return self._model.sm_mhz if domain == CLOCK_SM else self._model.memory_mhz

    def clock_event_reasons(self) -> int:
        """Return the mask of reasons."""
        self._state("clock_event_reasons")
        mask = 0
        for fault in self._faults:
            mask |= fault.reasons
        return mask

    def power(self) -> int:
        """Return milliwatts."""
        return round(self._state("power").watts * 1000)

    def power_limit(self) -> int:
        """Return the enforced limit in milliwatts."""
        return round(self._state("power_limit").limit_watts * 1000)

    def temperature(self) -> int:
        """Return the core temperature in degrees Celsius."""
        if any(fault.hangs for fault in self._faults):
            self._library.wait_stuck()
        return round(self._state("temperature").celsius)

    def temperature_margin(self) -> int:
        """Return the degrees Celsius left until slowdown."""
        state = self._state("temperature_margin")
        self._needs(self._model.architecture != "ampere", "temperature_margin")
        return round(self._model.slowdown_celsius - state.celsius)

    def sram_threshold_exceeded(self) -> bool:
        """Return True if SRAM errors have reached the vendor's criterion; the storm is in DRAM."""
        self._state("sram_threshold_exceeded")
        return False

    def pcie_link(self) -> tuple[int, int]:
        """Return the current generation and width."""
        self._state("pcie_link")
        return self._model.pcie_generation, 16

    def pcie_link_max(self) -> tuple[int, int]:
        """Return the generation and width that GPU and slot support."""
        self._state("pcie_link_max")
        return self._model.pcie_generation, 16

    def nvlink_active(self, link: int) -> bool:
        """Return True if a link is up."""
        self._state("nvlink_active")
        self._needs(link < self._model.links, "nvlink_active")
        return True

    def nvlink_errors(self, link: int, counter: int) -> int:
        """Return one of the error counters of a link."""
        return self._link_errors(self._state("nvlink_errors"), link, counter)

    def fabric(self) -> tuple[int, int, int]:
        """Return a completed registration; this generation has no health checks."""
        self._state("fabric")
        self._needs(self._model.architecture == "hopper", "fabric")
        return 3, SUCCESS, 0

    def mig_enabled(self) -> bool:
        """Return True if the GPU is partitioned."""
        self._state("mig_enabled")
        self._needs(self._model.hbm, "mig_enabled")
        return self._simulation.mig

    def mig_instances(self) -> Sequence[MigInstance]:
        """Return seven of the smallest MIG devices."""
        self._state("mig_instances")
        memory = self._model.memory_mib // 8
        profile = f"1g.{round(self._model.memory_mib / 8192)}gb"
        return [
            MigInstance(
                gpu_instance=7 + number,
                compute_instance=0,
                profile=profile,
                memory_total=memory * MEBI,
                memory_used=int(memory * 0.7) * MEBI,
                uuid=mig_uuid(self._node, self._index, number),
            )
            for number in range(MIG_DEVICES)
        ]

    def activity(self, metrics: Sequence[int], gpu_instance: int | None) -> Mapping[int, float]:
        """Return GPM metrics in percent; empty at the first call."""
        state = self._state("activity")
        self._needs(self._model.architecture == "hopper", "activity")
        self._needs(self._simulation.mig is (gpu_instance is not None), "activity")
        if gpu_instance not in self._seen:
            self._seen.add(gpu_instance)
            return {}
        values = {
            2: physics.SM_SHARE,
            5: state.tensor,
            10: physics.DRAM_SHARE * state.busy,
        }
        return {metric: values[metric] for metric in metrics}
