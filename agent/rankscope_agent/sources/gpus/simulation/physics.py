"""The state of a simulated GPU: a function of time, its model and its faults.

The GPUs train together. A slowed one makes the others wait: its peers' tensor activity and power
fall with its clock, while their utilisation stays, because waiting in a collective is a kernel too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankscope_agent.settings.simulation import MODELS, Fault, Model, Simulation

UPTIME_SECONDS = 3600.0
"""How long the node has been training when the simulation begins, so that counters are not 0."""

FAULT_SECONDS = 600.0
"""How long a fault has lasted when the simulation begins, so that a single page shows it."""

IDLE_WATTS = 70.0
"""Power that an H100 or H200 draws without load."""

MEMORY_COOLER = 5.0
"""Degrees by which memory is cooler than the core under load."""

TENSOR_SHARE, SM_SHARE, DRAM_SHARE = 62.0, 88.0, 41.0
"""Percentage of a well-tuned training step in which each unit is active."""

NVLINK_SHARE = 0.22
"""Share of the links' bandwidth that gradient exchange uses on average."""

PCIE_BYTES = 1.2e9
"""Bytes per second of input batches and checkpoints."""

UNCORRECTED_PART = 0.002
"""Share of the memory errors of an ECC storm that are uncorrectable."""

RELOAD_AFTER, RELOAD_LASTS, RELOAD_PERIOD = 5.0, 10.0, 60.0
"""Seconds from the start to the first reload of the driver, its duration, and the period."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a GPU at one time.

    Args:
        seconds: since the driver was loaded.
        fault_seconds: of these, the seconds with the fault.
        clock_mhz: SM clock.
        tensor: percentage of time in which the tensor cores are active.
        busy: achieved share of the possible work, for its counters.
    """

    seconds: float
    fault_seconds: float
    clock_mhz: int
    watts: float
    joules: float
    limit_watts: float
    celsius: float
    utilization: int
    tensor: float
    busy: float


def ripple(seconds: float, index: int) -> float:
    """Return a number from -1 to 1 that changes slowly, and differently for each GPU."""
    return math.sin(seconds / 7 + 1.7 * index)


def away(elapsed: float) -> bool:
    """Return True while the driver is being reloaded, on a node whose driver is."""
    return (elapsed - RELOAD_AFTER) % RELOAD_PERIOD < RELOAD_LASTS and elapsed >= RELOAD_AFTER


def loaded_seconds(elapsed: float) -> float:
    """Return how long the driver has been loaded, on a node whose driver is reloaded."""
    since_end = (elapsed - RELOAD_AFTER) % RELOAD_PERIOD - RELOAD_LASTS
    if elapsed < RELOAD_AFTER + RELOAD_LASTS:
        return UPTIME_SECONDS + min(elapsed, RELOAD_AFTER)
    return max(0.0, since_end)


def pace(simulation: Simulation) -> float:
    """Return the speed of the slowest GPU, which determines the speed of all."""
    return min(
        (fault.clock for index in range(simulation.count) for fault in simulation.fault(index)),
        default=1.0,
    )


def state(simulation: Simulation, index: int, elapsed: float) -> State:
    """Return the state of a GPU.

    Args:
        simulation: the node.
        index: the GPU.
        elapsed: seconds since the simulation began.
    """
    model = MODELS[simulation.model]
    faults = simulation.fault(index)
    gpus = range(simulation.count)
    reloads = any(fault.reloads for at in gpus for fault in simulation.fault(at))
    seconds = loaded_seconds(elapsed) if reloads else UPTIME_SECONDS + elapsed
    clock = min((fault.clock for fault in faults), default=1.0)
    limit = model.limit_watts * min((fault.power_limit for fault in faults), default=1.0)
    together = pace(simulation)
    busy = together / clock  # share of the time in which it could be active
    wave = ripple(elapsed, index)
    mean_watts = min(_watts(model, clock, busy), limit)
    return State(
        seconds=seconds,
        fault_seconds=min(seconds, FAULT_SECONDS + elapsed),
        clock_mhz=round(model.sm_mhz * clock / 15) * 15,  # clocks change in steps of 15 MHz
        watts=min(mean_watts + 6 * wave, limit),
        joules=mean_watts * seconds,
        limit_watts=limit,
        celsius=_celsius(model, faults, busy) + 0.8 * wave,
        utilization=100 if wave < 0.9 else 99,
        tensor=TENSOR_SHARE * busy + wave,
        busy=busy,
    )


def _watts(model: Model, clock: float, busy: float) -> float:
    """Return the power draw.

    Dynamic power falls faster than the clock, because voltage falls with it; waiting takes less
    power.
    """
    dynamic = model.load_watts - IDLE_WATTS
    return IDLE_WATTS + dynamic * clock**2 * (0.4 + 0.6 * busy)


def _celsius(model: Model, faults: tuple[Fault, ...], busy: float) -> float:
    heat = max((fault.heat for fault in faults), default=0.0)
    rise = model.load_celsius - model.idle_celsius
    return model.idle_celsius + rise * (0.5 + 0.5 * busy) + heat
