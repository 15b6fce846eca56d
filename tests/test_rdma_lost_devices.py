"""RDMA devices that go while the agent runs: lost ones are named, moved or renamed ones are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.rdma.collector import RESCAN_SECONDS, RdmaCollector
from rankscope_agent.sources.rdma.lost_devices import LostDevices
from rankscope_agent.sources.rdma.tree import RdmaTree
from rdma_files import add_port, write

PCI = "0000:3b:00.0"


class Node:
    """A node with adapters on a PCI bus, each bound to a driver."""

    def __init__(self, root: Path, netns_mode: str = "Y"):
        self.sysfs, self.now = root / "sys", 0.0
        self.tree = RdmaTree(self.sysfs, 0, everything=False)
        self.collector = RdmaCollector(self.tree, self.sysfs, lambda: self.now)
        write(self.sysfs / "module" / "ib_core" / "parameters" / "netns_mode", netns_mode)
        for driver in ("mlx5_core", "vfio-pci"):
            (self.sysfs / "bus" / "pci" / "drivers" / driver).mkdir(parents=True)

    def function(self, pci: str) -> Path:
        return self.sysfs / "devices" / "pci0000:3a" / pci

    def add(self, device: str, pci: str = PCI) -> None:
        add_port(self.sysfs, device)
        place = self.function(pci)
        place.mkdir(parents=True, exist_ok=True)
        (self.sysfs / "class" / "infiniband" / device / "device").symlink_to(place)
        if not (place / "driver").exists():
            self.bind("mlx5_core", pci)

    def bind(self, driver: str, pci: str = PCI) -> None:
        self.unbind(pci)
        (self.function(pci) / "driver").symlink_to(self.sysfs / "bus" / "pci" / "drivers" / driver)

    def unbind(self, pci: str = PCI) -> None:
        (self.function(pci) / "driver").unlink(missing_ok=True)

    def remove(self, device: str) -> None:
        shutil.rmtree(self.sysfs / "class" / "infiniband" / device)

    def lost(self) -> list[tuple[str, ...]]:
        self.now += RESCAN_SECONDS
        return [s.labels for s in self.collector.collect() if s.metric is metrics.DEVICE_LOST]


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_device_whose_adapter_leaves_the_bus_is_lost_until_it_is_back(node):
    node.add("mlx5_0")
    node.add("mlx5_1", "0000:5b:00.0")
    assert node.lost() == []
    node.remove("mlx5_0")
    shutil.rmtree(node.function(PCI))
    assert node.lost() == node.lost() == [("mlx5_0", PCI)]
    node.add("mlx5_0")
    assert node.lost() == []


def test_the_only_device_is_named_too(node):
    node.add("mlx5_0")
    node.lost()
    node.remove("mlx5_0")
    shutil.rmtree(node.function(PCI))
    assert node.lost() == [("mlx5_0", PCI)]


def test_a_device_that_its_driver_gives_up_is_lost_though_the_driver_stays(node):
    node.add("mlx5_0")
    node.lost()
    node.remove("mlx5_0")
    assert node.lost() == [("mlx5_0", PCI)]


@pytest.mark.parametrize("mode", ["N", ""])
def test_a_device_that_may_be_in_another_network_is_not_lost_while_its_driver_stays(tmp_path, mode):
    node = Node(tmp_path, mode)
    node.add("mlx5_0")
    node.add("mlx5_1", "0000:5b:00.0")
    node.lost()
    node.remove("mlx5_0")
    assert node.lost() == []
    node.unbind()
    assert node.lost() == [("mlx5_0", PCI)]


def test_a_device_with_another_name_is_not_lost(node):
    node.add("mlx5_0")
    node.lost()
    node.remove("mlx5_0")
    node.add("rocep59s0f0")
    assert node.lost() == []
    node.remove("rocep59s0f0")
    assert node.lost() == [("rocep59s0f0", PCI)]


def test_the_devices_of_two_ports_that_become_a_bond_are_not_lost(node):
    second = "0000:3b:00.1"
    node.add("mlx5_0")
    node.add("mlx5_1", second)
    node.lost()
    node.remove("mlx5_0")
    node.remove("mlx5_1")
    node.add("mlx5_bond_0")
    for pci, name in ((PCI, "ens1f0"), (second, "ens1f1")):
        (node.function(pci) / "net" / name / "master").mkdir(parents=True)
    assert node.lost() == []


def test_an_adapter_for_a_virtual_machine_is_not_lost(node):
    node.add("mlx5_0")
    node.add("mlx5_1", "0000:5b:00.0")
    node.lost()
    node.remove("mlx5_0")
    node.bind("vfio-pci")
    assert node.lost() == []


def test_virtual_functions_and_devices_in_software_are_never_lost(node):
    node.add("mlx5_0")
    node.add("mlx5_2", "0000:3b:00.2")
    (node.function("0000:3b:00.2") / "physfn").symlink_to(node.function(PCI))
    add_port(node.sysfs, "rxe0")
    node.lost()
    node.remove("mlx5_2")
    node.remove("rxe0")
    shutil.rmtree(node.function("0000:3b:00.2"))
    assert node.lost() == []


def test_nothing_is_lost_with_the_sysfs_itself_or_beyond_the_devices_that_are_listed(node):
    node.add("mlx5_0")
    node.lost()
    known = LostDevices(node.sysfs)
    known.look({"mlx5_0": node.sysfs / "class" / "infiniband" / "mlx5_0"})
    assert known.look({}) == []
    shutil.rmtree(node.sysfs)
    assert known.look({}) == []
    with pytest.raises(NoData):
        node.lost()


def test_the_devices_that_are_remembered_are_bounded(node):
    for number in range(70):
        node.add(f"mlx5_{number}", f"0000:{number:02x}:00.0")
    node.lost()
    for number in range(70):
        node.remove(f"mlx5_{number}")
    assert len(node.lost()) == 64
