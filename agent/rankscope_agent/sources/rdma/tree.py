"""All RDMA devices and ports of a node, found in sysfs and tracked as they come and go."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.kernel_files import names_in, read_number, read_text, resolved
from rankscope_agent.sources.pci.address import PCI_FUNCTION, is_virtual_function
from rankscope_agent.sources.rdma.counters import CounterFolder, Counters
from rankscope_agent.sources.rdma.lost_devices import LostDevices
from rankscope_agent.sources.rdma.names import Rule, own_name
from rankscope_agent.sources.rdma.port import Port
from rankscope_agent.sources.rdma.values import label_text

log = logging.getLogger(__name__)

MAX_DEVICES = 512
"""Devices that are read: eight adapters with 63 virtual functions each."""

MAX_PORTS = 64
"""Ports that are read: eight adapters, two ports each, four times over. Further ones, virtual
functions first, are counted but not read."""

MAX_PORTS_OF_DEVICE = 16

PortKey = tuple[str, str, int]
"""Device, port number, inode of the port's directory: a device that comes back is a new one."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device and its location.

    Args:
        path: its directory.
        virtual: whether it is a part of another one.
    """

    name: str
    path: Path
    virtual: bool


class RdmaTree:
    """The ports of a node.

    Args:
        sysfs: the node's sysfs.
        max_descriptors: how many descriptors may be kept; further files are opened each time.
        everything: whether to export counters while they are zero.
    """

    def __init__(self, sysfs: Path, max_descriptors: int, *, everything: bool) -> None:
        self._root = sysfs / "class" / "infiniband"
        self._interfaces = sysfs / "class" / "net"
        self._max_descriptors = max_descriptors
        self._everything = everything
        self._kept = 0
        self._ports: dict[PortKey, Port] = {}
        self._devices: dict[str, Counters] = {}
        self._info: tuple[Sample, ...] = ()
        self._lost = LostDevices(sysfs)
        self._gone: Sequence[Sample] = ()
        self._left_off = 0

    @property
    def found(self) -> bool:
        """Return True if there is a device, or one is lost."""
        return bool(self._info or self._gone)

    @property
    def changed(self) -> bool:
        """Return True if anything has disappeared since the last `refresh`."""
        ports = any(port.gone for port in self._ports.values())
        return ports or any(counters.gone for counters in self._devices.values())

    def refresh(self) -> None:
        """Find the devices and ports that have appeared, disappeared or changed."""
        devices = self._list_devices()
        self._info = tuple(_device_info(device) for device in devices)
        self._gone = self._lost.look({one.name: one.path for one in devices if not one.virtual})
        keys = list(self._list_ports(devices))
        self._left_off = max(0, len(keys) - MAX_PORTS)
        self._follow(keys[:MAX_PORTS])
        self._follow_devices(devices)

    def samples(self) -> list[Sample]:
        """Read all ports and return their samples, one port after another."""
        taken = [*self._info, *self._gone]
        for port in self._ports.values():
            taken += port.samples()
        for counters in self._devices.values():
            taken += counters.samples()
        if self._left_off:
            taken.append(Sample(metrics.PORTS_LEFT_OFF, (), self._left_off))
        return taken

    def close(self) -> None:
        """Close all descriptors."""
        for port in self._ports.values():
            port.close()
        for counters in self._devices.values():
            counters.close()

    def _list_devices(self) -> list[Device]:
        names, _ = names_in(self._root, MAX_DEVICES)
        found = []
        for name in names:
            path = self._root / name
            if label_text(name) == name and path.is_dir():
                found.append(Device(name, path, _is_virtual(path / "device")))
        return sorted(found, key=lambda device: device.virtual)

    def _list_ports(self, devices: list[Device]) -> Iterator[tuple[PortKey, Path]]:
        for device in devices:
            numbers, _ = names_in(device.path / "ports", MAX_PORTS_OF_DEVICE)
            for number in numbers:
                path = device.path / "ports" / number
                try:
                    inode = path.stat().st_ino
                except OSError:
                    continue
                if number.isdigit() and path.is_dir():
                    yield (device.name, number, inode), path

    def _follow(self, listed: list[tuple[PortKey, Path]]) -> None:
        before, self._ports = self._ports, {}
        for key, path in listed:
            port = before.pop(key, None)
            self._ports[key] = port or Port(
                path,
                self._interfaces,
                key[0],
                key[1],
                everything=self._everything,
                may_keep=self._may_keep,
            )
        for port in before.values():
            port.close()
        self._recount()
        for port in self._ports.values():
            port.refresh()

    def _follow_devices(self, devices: list[Device]) -> None:
        """Follow the counters that some drivers keep per device instead of per port."""
        before, self._devices = self._devices, {}
        for device in devices:
            folder = CounterFolder(device.path / "hw_counters", _device_rule)
            counters = before.pop(device.name, None) or Counters(
                [folder], (device.name,), everything=self._everything, may_keep=self._may_keep
            )
            counters.refresh()
            self._devices[device.name] = counters
        for counters in before.values():
            counters.close()

    def _may_keep(self) -> bool:
        self._kept += 1
        return self._kept <= self._max_descriptors

    def _recount(self) -> None:
        followed = [port.counters for port in self._ports.values()] + list(self._devices.values())
        self._kept = sum(counters.descriptors for counters in followed)


def _is_virtual(device: Path) -> bool:
    """Return True for a virtual function, or a subfunction such as `mlx5_core.sf.4`."""
    if is_virtual_function(device):
        return True
    place = resolved(device)
    return place is not None and ".sf." in place.name


def _device_rule(name: str) -> Rule | None:
    rule = own_name(name)
    return None if rule is None else Rule(metrics.DEVICE_EVENTS, rule.labels)


def _device_info(device: Device) -> Sample:
    def text(name: str) -> str:
        return label_text(read_text(device.path / name))

    location = resolved(device.path / "device")
    on_pci = location is not None and PCI_FUNCTION.fullmatch(location.name)
    numa = read_number(device.path / "device" / "numa_node")
    return Sample(
        metrics.DEVICE_INFO,
        (
            device.name,
            text("fw_ver"),
            text("board_id"),
            text("hca_type"),
            text("node_guid"),
            location.name if location is not None and on_pci else "",
            "" if numa is None else str(numa),
            metrics.VIRTUAL if device.virtual else metrics.PHYSICAL if on_pci else "",
        ),
        1,
    )
