"""Ways between GPUs and adapters on PCI buses, and the adapters that are nearest to each GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope_agent.contract.metrics import topology as metrics
from rankscope_agent.settings.simulation import parse_simulation
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.gpus.simulation.nvml import simulated_gpus
from rankscope_agent.sources.gpus.simulation.ports import simulated_sysfs
from rankscope_agent.sources.topology.collector import TopologyCollector
from rankscope_agent.sources.topology.distance import distance, location, nearest
from rankscope_agent.sources.topology.nvidia_gpus import nvidia_gpus, parse_uuid
from rdma_files import add_port, write

MAX_NEAREST = 8

UUID = "GPU-00000000-0000-0000-0000-00000000000{}"


def at(path: str, numa: int | None = 0):
    found = location(("/", "sys", "devices", *path.split("/")), numa)
    assert found is not None
    return found


# A socket with two root ports, a switch under each, as in servers with eight GPUs.
GPU = at("pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0")
SAME_SWITCH = at("pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/0000:1b:00.0")
NEXT_SWITCH = at("pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:02.0/0000:1c:00.0/0000:1d:00.0")
OTHER_PORT = at("pci0000:17/0000:17:03.0/0000:2a:00.0")
OTHER_ROOT = at("pci0000:3a/0000:3a:01.0/0000:3b:00.0")
OTHER_SOCKET = at("pci0000:97/0000:97:01.0/0000:98:00.0", 1)


@pytest.mark.parametrize(
    ("adapter", "way"),
    [
        (SAME_SWITCH, "PIX"),
        (NEXT_SWITCH, "PXB"),
        (OTHER_PORT, "PHB"),
        (OTHER_ROOT, "NODE"),
        (OTHER_SOCKET, "SYS"),
    ],
)
def test_each_class_of_way_is_told_and_is_the_same_both_ways(adapter, way):
    assert distance(GPU, adapter) == way
    assert distance(adapter, GPU) == way


def test_a_machine_that_does_not_tell_its_numa_nodes_has_one():
    one, other = at("pci0000:17/0000:18:00.0", None), at("pci0000:3a/0000:3b:00.0", None)
    assert distance(one, other) == "NODE"


def test_what_lies_below_a_device_or_on_no_bus_is_no_place_on_it():
    path = ("sys", "devices", "pci0000:00", "0000:00:03.0", "virtio2", "net", "eth0")
    assert location(path, 0).path == ("pci0000:00", "0000:00:03.0")
    assert location(("sys", "devices", "virtual", "net", "lo"), 0) is None


def test_a_gpu_gets_the_adapter_of_its_own_switch():
    adapters = {"mlx5_0": SAME_SWITCH, "mlx5_1": OTHER_PORT, "mlx5_2": OTHER_SOCKET}
    assert nearest({"gpu": GPU}, adapters) == [("gpu", "mlx5_0", "PIX")]


def test_equally_near_adapters_are_all_named_up_to_a_limit():
    adapters = {f"mlx5_{index}": OTHER_PORT for index in range(20)}
    assert len(nearest({"gpu": GPU}, adapters)) == MAX_NEAREST
    assert nearest({"gpu": GPU}, {}) == []


def test_a_uuid_that_the_driver_has_lost_is_none():
    assert parse_uuid(f"Model: X\nGPU UUID: \t {UUID.format(1)}\nVideo BIOS: x") == UUID.format(1)
    assert parse_uuid("GPU UUID: GPU-????????-????-????-????-????????????") is None
    assert parse_uuid("") is None


class Machine:
    """Two switches, each with a GPU and an adapter."""

    def __init__(self, root: Path):
        self.procfs, self.sysfs = root / "proc", root / "sys"
        for index in range(2):
            gpu = self.device(index, f"0000:{index}1:00.0", 0)
            information = self.procfs / "driver" / "nvidia" / "gpus" / gpu.name / "information"
            write(information, f"GPU UUID:  {UUID.format(index)}")
            bus = self.sysfs / "bus" / "pci" / "devices"
            bus.mkdir(parents=True, exist_ok=True)
            (bus / gpu.name).symlink_to(gpu)

    def device(self, switch: int, name: str, port: int) -> Path:
        root, above = f"pci0000:{switch}0", f"0000:{switch}0:0{port}.0"
        place = self.sysfs / "devices" / root / f"0000:{switch}0:01.0" / above / name
        write(place / "numa_node", switch)
        return place

    def rdma(self) -> None:
        for index in range(2):
            add_port(self.sysfs, f"mlx5_{index}")
            device = self.sysfs / "class" / "infiniband" / f"mlx5_{index}" / "device"
            device.symlink_to(self.device(index, f"0000:{index}2:00.0", 1))

    def look(self):
        collector = TopologyCollector(self.sysfs, lambda: nvidia_gpus(self.procfs), lambda: 0.0)
        return [sample.labels for sample in collector.collect()]


def test_each_gpu_is_joined_to_the_rdma_device_of_its_switch(tmp_path):
    machine = Machine(tmp_path)
    machine.rdma()
    assert machine.look() == [
        (UUID.format(0), "mlx5_0", "PIX"),
        (UUID.format(1), "mlx5_1", "PIX"),
    ]


def test_without_rdma_network_interfaces_serve_the_gpus(tmp_path):
    machine = Machine(tmp_path)
    place = machine.sysfs / "class" / "net" / "eth0"
    place.mkdir(parents=True)
    (place / "device").symlink_to(machine.device(0, "0000:05:00.0", 1))
    assert machine.look() == [
        (UUID.format(0), "eth0", "PIX"),
        (UUID.format(1), "eth0", "SYS"),
    ]


def test_virtual_functions_serve_no_gpu_of_the_node(tmp_path):
    machine = Machine(tmp_path)
    machine.rdma()
    (machine.sysfs / "class" / "infiniband" / "mlx5_0" / "device" / "physfn").mkdir()
    assert {device for _, device, _ in machine.look()} == {"mlx5_1"}


def test_a_gpu_that_is_gone_from_the_bus_costs_itself(tmp_path):
    machine = Machine(tmp_path)
    machine.rdma()
    (machine.sysfs / "bus" / "pci" / "devices" / "0000:01:00.0").unlink()
    assert machine.look() == [(UUID.format(1), "mlx5_1", "PIX")]


def test_a_node_without_gpus_says_so(tmp_path):
    with pytest.raises(NoData, match="driver/nvidia/gpus"):
        TopologyCollector(tmp_path, dict, lambda: 0.0).collect()


@pytest.mark.parametrize(
    ("text", "served"),
    [
        ("h100x8", {f"mlx5_{index}": "PIX" for index in (0, 1, 3, 4, 5, 6, 7, 8)}),
        ("a100x2", {"mlx5_0": "PIX", "mlx5_1": "PIX"}),
        ("l40sx8", {"mlx5_0": "NODE", "mlx5_1": "NODE"}),
    ],
)
def test_simulated_gpus_have_their_adapters_and_the_one_for_storage_serves_none(text, served):
    made_up = parse_simulation(text)
    assert made_up is not None
    with simulated_sysfs(made_up) as sysfs:
        gpus = simulated_gpus(made_up, "node")
        collector = TopologyCollector(sysfs, lambda: gpus, lambda: 0.0)
        labels = [sample.labels for sample in collector.collect()]
    assert {uuid for uuid, _, _ in labels} == set(gpus.values())
    assert len(labels) == made_up.count
    assert {device: way for _, device, way in labels} == served


def test_the_metric_has_the_labels_that_joins_stand_on():
    assert metrics.GPU_NIC_INFO.labels == ("uuid", "device", "distance")
