"""Nodes that can be simulated, and their faults: `h100x8:thermal@3+flap`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MAX_GPUS = 16
"""GPUs of one simulated node: as many as the largest real nodes have."""


@dataclass(frozen=True, slots=True)
class Model:
    """A kind of GPU and its node.

    Args:
        name: the driver's name for it.
        memory_mib: memory of the GPU in MiB, of which the driver reserves `reserved_mib`.
        sm_mhz: highest SM clock; `memory_mhz` that of memory.
        limit_watts: the board's power limit; the next field is its draw under load.
        idle_celsius: core temperature without load.
        load_celsius: core temperature under load.
        slowdown_celsius: core temperature at which the clock is throttled.
        hbm: whether memory has a temperature sensor and rows can be remapped.
        links: number of NVLinks; each carries `link_bytes` per second and direction.
        architecture: decides what the driver reports: GPM activity and the state of the NVLink
            fabric from Hopper on, temperature margin and PCIe counters from Ada on.
        ports: number of RDMA adapters of the node; the next field is their rate.
    """

    name: str
    vbios: str
    memory_mib: int
    reserved_mib: int
    sm_mhz: int
    memory_mhz: int
    limit_watts: float
    load_watts: float
    idle_celsius: float
    load_celsius: float
    slowdown_celsius: float
    hbm: bool
    links: int
    link_bytes: float
    architecture: Literal["ampere", "ada", "hopper"]
    pcie_generation: int
    ports: int
    port_rate: str
    port_type: str


# Clocks, limits, memory and loads of H100, H200 and L40S are those that nvidia-smi shows on such
# cards under load (drivers 590 and 595); those of the A100 come from NVIDIA's data sheet.
MODELS: Mapping[str, Model] = {
    "h100": Model(
        name="NVIDIA H100 80GB HBM3",
        vbios="96.00.A5.00.01",
        memory_mib=81559,
        reserved_mib=479,
        sm_mhz=1980,
        memory_mhz=2619,
        limit_watts=700,
        load_watts=629,
        idle_celsius=41,
        load_celsius=59,
        slowdown_celsius=87,
        hbm=True,
        links=18,
        link_bytes=26.562e9,
        architecture="hopper",
        pcie_generation=5,
        ports=9,
        port_rate="400 Gb/sec (4X NDR)",
        port_type="MT4129",
    ),
    "h200": Model(
        name="NVIDIA H200",
        vbios="96.00.A5.00.03",
        memory_mib=143771,
        reserved_mib=614,
        sm_mhz=1980,
        memory_mhz=3201,
        limit_watts=700,
        load_watts=628,
        idle_celsius=28,
        load_celsius=52,
        slowdown_celsius=89,
        hbm=True,
        links=18,
        link_bytes=26.562e9,
        architecture="hopper",
        pcie_generation=5,
        ports=9,
        port_rate="400 Gb/sec (4X NDR)",
        port_type="MT4129",
    ),
    "a100": Model(
        name="NVIDIA A100-SXM4-80GB",
        vbios="92.00.45.00.03",
        memory_mib=81920,
        reserved_mib=618,
        sm_mhz=1410,
        memory_mhz=1593,
        limit_watts=400,
        load_watts=371,
        idle_celsius=33,
        load_celsius=58,
        slowdown_celsius=92,
        hbm=True,
        links=12,
        link_bytes=25e9,
        architecture="ampere",
        pcie_generation=4,
        ports=9,
        port_rate="200 Gb/sec (4X HDR)",
        port_type="MT4123",
    ),
    "l40s": Model(
        name="NVIDIA L40S",
        vbios="95.02.66.00.02",
        memory_mib=46068,
        reserved_mib=609,
        sm_mhz=2520,
        memory_mhz=9001,
        limit_watts=350,
        load_watts=312,
        idle_celsius=38,
        load_celsius=63,
        slowdown_celsius=88,
        hbm=False,
        links=0,
        link_bytes=0,
        architecture="ada",
        pcie_generation=4,
        ports=2,
        port_rate="200 Gb/sec (4X HDR)",
        port_type="MT4125",
    ),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """The faults of a scenario's GPUs or ports; the defaults are healthy.

    Args:
        clock: SM clock as a share of its normal value.
        power_limit: enforced limit as a share of the board's default.
        heat: degrees above what the load explains.
        reasons: bits of the clock event mask.
        event_fields: fields of clock event time that increase all of the time.
        lost: whether it has fallen off the bus; every call then returns that error.
        hangs: whether one call never returns.
        ecc: corrected memory errors per second; some are uncorrectable.
        link_errors: errors per second of one NVLink.
        reloads: whether the driver is repeatedly away for a while.
        xid: reported once, at the start.
        congested: whether an RDMA port waits for its switch and has to send more slowly.
        flaps: whether an RDMA port goes down and comes back.
    """

    clock: float = 1.0
    power_limit: float = 1.0
    heat: float = 0.0
    reasons: int = 0
    event_fields: tuple[int, ...] = ()
    lost: bool = False
    hangs: bool = False
    ecc: float = 0.0
    link_errors: float = 0.0
    reloads: bool = False
    xid: int = 0
    congested: bool = False
    flaps: bool = False


# Bits: 4 software power cap, 8 hardware slowdown, 32 software and 64 hardware thermal slowdown.
SCENARIOS: Mapping[str, Fault] = {
    "healthy": Fault(),
    "thermal": Fault(clock=0.61, heat=29, reasons=8 | 64, event_fields=(270,)),
    "power-cap": Fault(clock=0.72, power_limit=400 / 700, reasons=4, event_fields=(74,)),
    "xid79": Fault(lost=True, xid=79),
    "ecc-storm": Fault(ecc=40, xid=92),
    "nvlink": Fault(link_errors=15, xid=74),
    "driver-reload": Fault(reloads=True),
    "hung": Fault(hangs=True),
    "congestion": Fault(congested=True),
    "flap": Fault(flaps=True),
}
"""The available faults by name."""

EVERY = -1
"""A target that stands for all GPUs or ports."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """The requested simulation of a node.

    Args:
        text: as it was requested.
        model: key of `MODELS`.
        count: number of GPUs.
        mig: whether the GPUs are partitioned.
        faults: pairs of scenario and the index of its GPU or port.
    """

    text: str
    model: str
    count: int
    mig: bool
    faults: tuple[tuple[str, int], ...]

    def fault(self, index: int) -> tuple[Fault, ...]:
        """Return the faults of one GPU or port."""
        return tuple(SCENARIOS[name] for name, at in self.faults if at in {EVERY, index})


_FORM = re.compile(r"(?P<model>[a-z0-9]+)x(?P<count>[0-9]{1,3})(?P<mig>-mig)?(?::(?P<faults>.+))?")
_FAULT = re.compile(r"(?P<name>[a-z0-9-]+)(?:@(?P<at>[0-9]{1,3}|all))?")


def parse_simulation(text: str) -> Simulation | None:
    """Read `MODELxCOUNT[-mig][:SCENARIO[@INDEX|@all][+SCENARIO...]]`; empty means no simulation.

    A scenario without an index applies to GPU 5, or to the last one if there are fewer.

    Raises:
        ValueError: the model or scenario is unknown, or the number of GPUs is out of range.
    """
    if not text:
        return None
    match = _FORM.fullmatch(text)
    if match is None or match["model"] not in MODELS:
        raise ValueError(f"expected one of {', '.join(f'{m}x8' for m in MODELS)}, got {text!r}")
    count = int(match["count"])
    if not 1 <= count <= MAX_GPUS:
        raise ValueError(f"expected 1 to {MAX_GPUS} GPUs, got {text!r}")
    if match["mig"] and not MODELS[match["model"]].hbm:
        raise ValueError(f"expected a model that can be partitioned, got {text!r}")
    faults = tuple(_fault(part, count) for part in (match["faults"] or "healthy").split("+"))
    return Simulation(text, match["model"], count, bool(match["mig"]), faults)


def _fault(text: str, count: int) -> tuple[str, int]:
    match = _FAULT.fullmatch(text)
    if match is None or match["name"] not in SCENARIOS:
        raise ValueError(f"expected a scenario of {', '.join(SCENARIOS)}, got {text!r}")
    if match["at"] == "all":
        return match["name"], EVERY
    at = min(5, count - 1) if match["at"] is None else int(match["at"])
    if at >= count:
        raise ValueError(f"expected an index below {count}, got {text!r}")
    return match["name"], at
