"""RDMA devices that were there and are lost: their adapter left the bus, or its driver gave it up.

A device that is merely no longer listed may also have got another name, belong to a bond, have been
given to a virtual machine, or have been moved into a pod's network: none of these is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.kernel_files import names_in, read_text, resolved
from rankscope_agent.sources.pci.address import PCI_FUNCTION

MAX_REMEMBERED = 64
"""Devices that are remembered: eight adapters of two ports, four times over."""

MAX_INTERFACES = 16
"""Interfaces of a lost device's adapter that are looked at; one of two ports has two."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An adapter as it was when it had its RDMA device.

    Args:
        function: its directory among the PCI devices.
        driver: name of its driver, empty if that was not shown.
    """

    function: Path
    driver: str


class LostDevices:
    """Remembers the devices of adapters, and tells which are lost.

    Args:
        sysfs: the node's sysfs.
    """

    def __init__(self, sysfs: Path) -> None:
        self._classes = sysfs / "class"
        self._mode = sysfs / "module" / "ib_core" / "parameters" / "netns_mode"
        self._known: dict[str, _Known] = {}

    def look(self, present: Mapping[str, Path]) -> Sequence[Sample]:
        """Return a sample for each lost device.

        Args:
            present: the directory of each device that there is, in the order of importance;
                without virtual functions, which come and go with pods.
        """
        adapters = {name: _function(path) for name, path in present.items()}
        in_use = set(adapters.values())
        for name in [*self._known]:
            if name not in present and self._known[name].function in in_use:
                del self._known[name]  # it has another name now
        lost = [name for name in self._known if name not in present and self._is_lost(name)]
        self._remember(adapters.items())
        return [
            Sample(metrics.DEVICE_LOST, (name, self._known[name].function.name), 1) for name in lost
        ]

    def _remember(self, adapters: Iterable[tuple[str, Path | None]]) -> None:
        for name, function in adapters:
            room = name in self._known or len(self._known) < MAX_REMEMBERED
            if function is not None and room:
                self._known[name] = _Known(function, _driver(function))

    def _is_lost(self, name: str) -> bool:
        known = self._known[name]
        if not self._classes.is_dir() or (self._classes / "infiniband" / name).exists():
            return False  # sysfs is not mounted any more, or the device is beyond a limit
        if not known.function.exists():
            return True
        driver = _driver(known.function)
        if driver != known.driver:
            return not driver
        # In the other mode a device is only seen in the network that it was moved to.
        shared = read_text(self._mode) == "Y"
        return shared and bool(driver) and not _is_bonded(known.function)


def _function(device: Path) -> Path | None:
    """Return the PCI function of a device, None if it has none."""
    place = resolved(device / "device")
    if place is None or not PCI_FUNCTION.fullmatch(place.name):
        return None
    return place


def _driver(function: Path) -> str:
    """Return the name of a PCI function's driver; empty without one."""
    driver = resolved(function / "driver")
    return "" if driver is None else driver.name


def _is_bonded(function: Path) -> bool:
    """Return True if an interface of the function is in a bond, which has one device for all."""
    names, _ = names_in(function / "net", MAX_INTERFACES)
    return any((function / "net" / name / "master").exists() for name in names)
