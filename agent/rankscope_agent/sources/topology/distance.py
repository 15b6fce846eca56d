"""Distances between PCI devices, and the adapters nearest to each GPU. Pure.

The classes are those of `nvidia-smi topo` and NCCL: PIX, at most one switch between them; PXB,
several bridges below one root port; PHB, through the root of their bus (the CPU); NODE, between the
roots of one NUMA node; SYS, between NUMA nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rankscope_agent.sources.pci.address import PCI_FUNCTION

Distance = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]

DISTANCES: tuple[Distance, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far."""

ONE_SWITCH = 2
"""Levels below the common ancestor within one switch: its port on this side, and the device."""

MAX_NEAREST = 8
"""Equally near adapters named for one GPU, as in a machine that hides its buses."""


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a device.

    Args:
        path: its directories in sysfs from the root bus down, `pci0000:17/0000:17:01.0/...`.
        numa_node: its NUMA node; None if the machine does not say.
    """

    path: tuple[str, ...]
    numa_node: int | None


def location(parts: Sequence[str], numa_node: int | None) -> Location | None:
    """Return the location of a device from the parts of its real path in sysfs.

    None for devices on no PCI bus. Directories below the device itself are left out.
    """
    roots = [index for index, part in enumerate(parts) if part.startswith("pci")]
    if not roots:
        return None
    below = roots[0] + 1
    end = below
    while end < len(parts) and PCI_FUNCTION.fullmatch(parts[end]):
        end += 1
    path = tuple(parts[roots[0] : end])
    return Location(path, numa_node) if len(path) > 1 else None


def distance(one: Location, other: Location) -> Distance:
    """Return the class of the path between two devices."""
    shared = 0
    for left, right in zip(one.path, other.path, strict=False):
        if left != right:
            break
        shared += 1
    if shared == 0:
        return "NODE" if one.numa_node == other.numa_node else "SYS"
    if shared == 1:
        return "PHB"
    below = max(len(one.path), len(other.path)) - shared
    return "PIX" if below <= ONE_SWITCH else "PXB"


def nearest(
    gpus: Mapping[str, Location], adapters: Mapping[str, Location]
) -> Sequence[tuple[str, str, Distance]]:
    """Return for each GPU the nearest adapters, all of them if equally near."""
    found = []
    for gpu, location in gpus.items():
        ways = [(name, distance(location, other)) for name, other in adapters.items()]
        best = min((DISTANCES.index(way) for _, way in ways), default=None)
        near = [(gpu, name, way) for name, way in ways if DISTANCES.index(way) == best]
        found += near[:MAX_NEAREST]
    return found
