"""Statistics of drivers and PCI devices beyond the kernel's own counters."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rankscope_agent.contract.metrics import netdev as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.kernel_files import names_in, resolved
from rankscope_agent.sources.netdev.ethtool import Ethtool
from rankscope_agent.sources.netdev.ethtool_names import labelled, pauses
from rankscope_agent.sources.netdev.interfaces import Interface
from rankscope_agent.sources.pci.address import PCI_FUNCTION, is_virtual_function
from rankscope_agent.sources.pci.link import read_errors, read_link

MAX_ADAPTERS = 64
"""PCI functions that are read, not counting virtual ones."""


def driver_statistics(ethtool: Ethtool, interfaces: Iterable[Interface]) -> Iterator[Sample]:
    """Yield the statistics of the drivers of real interfaces, if they have any.

    Pauses that one of them has counted are shown of all, so that they can be compared.
    """
    read: dict[str, Mapping[str, int]] = {}
    for interface in interfaces:
        if interface.kind == "physical":
            with contextlib.suppress(OSError):
                read[interface.name] = ethtool.statistics(interface.name)
    paused = frozenset(name for statistics in read.values() for name in pauses(statistics))
    for name, statistics in read.items():
        yield from labelled(name, statistics, paused)


def find_adapters(sysfs: Path, interfaces: Iterable[Interface]) -> Mapping[str, Path]:
    """Return the PCI functions of network interfaces and RDMA devices, with their directories."""
    root = sysfs / "class" / "infiniband"
    owners = [interface.path for interface in interfaces]
    owners += [root / name for name in names_in(root, MAX_ADAPTERS)[0]]
    devices = [resolved(owner / "device") for owner in owners]
    found = {
        device.name: device for device in devices if device is not None and _is_adapter(device)
    }
    return dict(itertools.islice(found.items(), MAX_ADAPTERS))


def _is_adapter(device: Path) -> bool:
    return bool(PCI_FUNCTION.fullmatch(device.name)) and not is_virtual_function(device)


class Adapters:
    """The PCI links of adapters, and their errors.

    Args:
        everything: whether to export lanes and speeds even if they are at their maximum.
    """

    def __init__(self, *, everything: bool) -> None:
        self._everything = everything
        self._errors: dict[str, int] = {}
        self._last_error: dict[str, float] = {}

    def samples(self, adapters: Mapping[str, Path], now: float) -> Iterator[Sample]:
        """Yield links and errors; `now` is Unix time."""
        for pci, device in adapters.items():
            yield from self._link(pci, device)
            yield from self._aer(pci, device, now)

    def _link(self, pci: str, device: Path) -> Iterator[Sample]:
        link = read_link(device)
        if link is None:
            return
        yield Sample(metrics.PCI_LINK_RATIO, (pci,), link.ratio)
        for metric, current, largest in (
            (metrics.PCI_LINK_WIDTH, link.width, link.max_width),
            (metrics.PCI_LINK_SPEED, link.speed, link.max_speed),
        ):
            if current != largest or self._everything:
                yield Sample(metric, (pci, "current"), current)
                yield Sample(metric, (pci, "max"), largest)

    def _aer(self, pci: str, device: Path, now: float) -> Iterator[Sample]:
        total = 0
        for severity, kind, count in read_errors(device):
            total += count
            if count:
                yield Sample(metrics.AER_ERRORS, (pci, severity, kind), count)
        if total > self._errors.get(pci, total):
            self._last_error[pci] = now
        self._errors[pci] = total
        if pci in self._last_error:
            yield Sample(metrics.AER_LAST, (pci,), self._last_error[pci])
