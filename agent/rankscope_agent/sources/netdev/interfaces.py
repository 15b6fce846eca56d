"""The node's interfaces, and which of them are exported individually."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rankscope_agent.contract.metrics import netdev as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.kernel_files import names_in, read_text, resolved
from rankscope_agent.sources.netdev.tables import parse_count
from rankscope_agent.sources.pci.address import PCI_FUNCTION, is_virtual_function

Kind = Literal["physical", "bond", "virtual"]

MAX_INTERFACES = 8192
"""Interfaces that are read; a node has a few per pod."""

MAX_SHOWN = 32
"""Interfaces exported individually: eight adapters of two ports, twice over."""

LOOPBACK = "lo"

PRIORITIES = tuple(str(priority) for priority in range(8))  # of IEEE 802.1Q


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface.

    Args:
        path: its directory in sysfs.
        kind: real hardware, a bond, or neither.
        pci: its PCI function; empty if it has none.
        rdma: whether the same adapter is an RDMA device, which carries the training traffic.
    """

    name: str
    path: Path
    kind: Kind
    pci: str
    rdma: bool


def list_interfaces(sysfs: Path, *, virtual: bool) -> tuple[Sequence[Interface], int]:
    """Return the interfaces to export individually, and the number of others.

    Args:
        sysfs: the node's sysfs.
        virtual: whether to include those that are neither hardware nor bonds, after the others.
    """
    root = sysfs / "class" / "net"
    names, beyond = names_in(root, MAX_INTERFACES)
    found = [_interface(root / name) for name in names if name != LOOPBACK]
    usable = [interface for interface in found if interface is not None]
    shown = [interface for interface in usable if virtual or interface.kind != "virtual"]
    shown.sort(key=lambda interface: interface.kind == "virtual")
    shown = shown[:MAX_SHOWN]
    return shown, len(usable) - len(shown) + beyond


def _interface(path: Path) -> Interface | None:
    if not path.is_dir() or not path.name.isprintable():
        return None
    device = path / "device"
    is_bond = (path / "bonding").is_dir()
    if not device.exists():  # a veth pair, a bridge, a bond: each further check is a system call
        return Interface(path.name, path, "bond" if is_bond else "virtual", "", rdma=False)
    kind: Kind = "virtual"
    if is_bond:
        kind = "bond"
    elif not is_virtual_function(device) and not _is_representor(path):
        kind = "physical"
    bus = resolved(device)
    pci = bus.name if bus is not None and PCI_FUNCTION.fullmatch(bus.name) else ""
    return Interface(path.name, path, kind, pci, (device / "infiniband").is_dir())


def _is_representor(path: Path) -> bool:
    """Return True if this is the switch's end of a virtual function (phys_port_name `pf0vf3`)."""
    name = read_text(path / "phys_port_name")
    return "vf" in name or "sf" in name


def describe(interface: Interface) -> Iterator[Sample]:
    """Yield what rarely changes: the interface's properties, bond slaves and ECN switches."""
    path = interface.path
    numa = read_text(path / "device" / "numa_node")
    master = resolved(path / "master") if (path / "master").exists() else None
    bond = master.name if master is not None and (master / "bonding").is_dir() else ""
    mtu = parse_count(read_text(path / "mtu"))
    yield Sample(
        metrics.INFO,
        (
            interface.name,
            interface.kind,
            interface.pci,
            numa if parse_count(numa) is not None else "",
            bond,
            "" if mtu is None else str(mtu),
        ),
        1,
    )
    if interface.kind == "bond":
        yield from _bond(interface)
    for role in ("np", "rp"):  # notification point (receiver) and reaction point (sender)
        yield from _ecn(interface, role)


def _bond(interface: Interface) -> Iterator[Sample]:
    slaves = read_text(interface.path / "bonding" / "slaves").split()
    active = sum(_slave_is_up(interface.path, slave) for slave in slaves if "/" not in slave)
    for state, count in (("configured", len(slaves)), ("active", active)):
        yield Sample(metrics.BOND_SLAVES, (interface.name, state), count)


def _slave_is_up(bond: Path, slave: str) -> bool:
    """Try both names that kernels have used for a bond's link to its slave."""
    paths = (bond / f"lower_{slave}", bond / f"slave_{slave}")
    return any(read_text(path / "bonding_slave" / "mii_status") == "up" for path in paths)


def _ecn(interface: Interface, role: str) -> Iterator[Sample]:
    folder = interface.path / "ecn" / f"roce_{role}" / "enable"
    switches = {priority: read_text(folder / priority, 8) for priority in PRIORITIES}
    if any(switches.values()):
        on = ",".join(priority for priority, text in switches.items() if text == "1")
        yield Sample(metrics.ECN_INFO, (interface.name, role, on), 1)
