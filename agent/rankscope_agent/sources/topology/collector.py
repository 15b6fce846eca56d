"""The adapters nearest to each GPU, from the PCI topology in sysfs.

An adapter is an RDMA device or, if the node has none, a network interface.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rankscope_agent.contract.metrics import topology as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.gpus.simulation.nvml import simulated_gpus
from rankscope_agent.sources.kernel_files import names_in, read_number, resolved
from rankscope_agent.sources.netdev.interfaces import list_interfaces
from rankscope_agent.sources.pci.address import is_virtual_function
from rankscope_agent.sources.topology.distance import Location, location, nearest
from rankscope_agent.sources.topology.nvidia_gpus import nvidia_gpus

RESCAN_SECONDS = 60.0
"""Time between two readings of the buses, which only change by hot-plug."""

MAX_ADAPTERS = 64


def create(config: Config) -> TopologyCollector:
    """Create the collector of the node's topology."""
    made_up, node = config.simulate, config.node_name
    if made_up is not None:
        return TopologyCollector(
            config.sysfs, lambda: simulated_gpus(made_up, node), time.monotonic
        )
    return TopologyCollector(config.sysfs, lambda: nvidia_gpus(config.procfs), time.monotonic)


class TopologyCollector:
    """Reads the node's buses.

    Args:
        sysfs: the node's sysfs.
        gpus: returns the UUIDs of the node's GPUs by PCI function.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, sysfs: Path, gpus: Callable[[], Mapping[str, str]], clock: Callable[[], float]
    ) -> None:
        self._sysfs = sysfs
        self._gpus = gpus
        self._clock = clock
        self._scanned = float("-inf")
        self._samples: tuple[Sample, ...] = ()

    def collect(self) -> Sequence[Sample]:
        """Return each GPU's nearest adapters.

        Raises:
            NoData: the node shows no GPU, or none that is on a PCI bus.
        """
        now = self._clock()
        if now - self._scanned >= RESCAN_SECONDS:
            self._samples = tuple(self._look())
            self._scanned = now
        if not self._samples:
            raise NoData(
                "no GPU in driver/nvidia/gpus of the procfs with an adapter on the PCI buses of"
                f" {self._sysfs}"
            )
        return self._samples

    def _look(self) -> Iterator[Sample]:
        gpus: dict[str, Location] = {}
        for pci, uuid in self._gpus().items():
            place = locate(self._sysfs / "bus" / "pci" / "devices" / pci)
            if place is not None:
                gpus[uuid] = place
        for uuid, device, way in nearest(gpus, adapters(self._sysfs)):
            yield Sample(metrics.GPU_NIC_INFO, (uuid, device, way), 1)


def adapters(sysfs: Path) -> Mapping[str, Location]:
    """Return where RDMA devices are, or else network interfaces, excluding virtual functions."""
    root = sysfs / "class" / "infiniband"
    devices = {name: root / name / "device" for name in names_in(root, MAX_ADAPTERS)[0]}
    if not devices:
        shown, _ = list_interfaces(sysfs, virtual=False)
        devices = {interface.name: interface.path / "device" for interface in shown}
    places = {
        name: locate(device) for name, device in devices.items() if not is_virtual_function(device)
    }
    return {name: place for name, place in places.items() if place is not None}


def locate(device: Path) -> Location | None:
    """Return where a device is; None if it is gone or on no PCI bus."""
    place = resolved(device)
    if place is None:
        return None
    return location(place.parts, read_number(place / "numa_node"))
