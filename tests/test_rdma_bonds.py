"""The rate of RDMA devices whose interface is a bond: of all its links, if they are its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.sources.rdma.tree import RdmaTree
from rdma_files import add_port, write

GIGABIT = 1e9 / 8


class Node:
    """A node whose interfaces `eth0` and `eth1` are the links of `bond0`, and all have 100 Gb/s."""

    def __init__(self, sysfs: Path, functions: tuple[str, str]):
        self.sysfs, self.net = sysfs, sysfs / "class" / "net"
        write(self.net / "bond0" / "bonding" / "slaves", "eth0 eth1")
        write(self.net / "bond0" / "speed", 200_000)
        for name, pci in zip(("eth0", "eth1"), functions, strict=True):
            place = sysfs / "devices" / "pci0000:1a" / pci
            place.mkdir(parents=True)
            (self.net / name).mkdir()
            (self.net / name / "device").symlink_to(place)
        self.tree = RdmaTree(sysfs, 100, everything=False)

    def add(self, device: str, interface: str, *owned_by: str) -> None:
        rate = "100 Gb/sec (4X EDR)"
        port = add_port(self.sysfs, device, rate=rate, link_layer="Ethernet")
        write(port / "gid_attrs" / "ndevs" / "0", interface)
        for owner in owned_by:
            (self.net / owner / "device" / "infiniband" / device).mkdir(parents=True)

    def rates(self) -> dict[str, float]:
        self.tree.refresh()
        samples = self.tree.samples()
        self.tree.close()
        return {s.labels[0]: s.value / GIGABIT for s in samples if s.metric is metrics.PORT_RATE}


ONE_ADAPTER = ("0000:1b:00.0", "0000:1b:00.1")


def test_the_one_device_of_a_bond_has_the_rate_of_all_links(tmp_path):
    node = Node(tmp_path, ONE_ADAPTER)
    node.add("mlx5_bond_0", "bond0", "eth0")
    assert node.rates() == {"mlx5_bond_0": 200}
    write(node.net / "bond0" / "speed", 100_000)  # a link is down
    assert node.rates() == {"mlx5_bond_0": 100}
    write(node.net / "bond0" / "speed", -1)
    assert node.rates() == {"mlx5_bond_0": 100}, "what the port says of itself"


def test_adapters_whose_links_are_bonded_in_software_have_the_rate_of_their_own_link(tmp_path):
    node = Node(tmp_path, ("0000:1b:00.0", "0000:5b:00.0"))
    node.add("mlx5_0", "bond0", "eth0")
    node.add("mlx5_1", "bond0", "eth1")
    assert node.rates() == {"mlx5_0": 100, "mlx5_1": 100}


def test_ports_of_one_adapter_that_keep_their_devices_have_the_rate_of_their_own_link(tmp_path):
    node = Node(tmp_path, ONE_ADAPTER)
    node.add("mlx5_0", "bond0", "eth0")
    node.add("mlx5_1", "bond0", "eth1")
    assert node.rates() == {"mlx5_0": 100, "mlx5_1": 100}


def test_a_link_without_rdma_of_another_adapter_adds_nothing(tmp_path):
    node = Node(tmp_path, ("0000:1b:00.0", "0000:5b:00.0"))
    node.add("mlx5_0", "bond0", "eth0")
    assert node.rates() == {"mlx5_0": 100}


@pytest.mark.parametrize("interface", ["eth0", "bond1", ""])
def test_the_device_of_any_other_interface_has_its_own_rate(tmp_path, interface):
    node = Node(tmp_path, ONE_ADAPTER)
    node.add("mlx5_0", interface, "eth0")
    assert node.rates() == {"mlx5_0": 100}
