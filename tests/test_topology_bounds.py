"""How often a node's topology is looked at, how much of it, and when devices share a switch."""

from __future__ import annotations

import pytest

from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.topology.collector import TopologyCollector, adapters
from rankscope_agent.sources.topology.distance import distance
from rankscope_agent.sources.topology.nvidia_gpus import nvidia_gpus
from rdma_files import write
from standing_clock import Clock
from test_topology import GPU, at


def test_the_topology_is_looked_at_once_a_minute(tmp_path):
    clock, looks = Clock(), []
    collector = TopologyCollector(tmp_path, lambda: looks.append(1) or {}, clock)
    for later in (0.0, 59.9, 0.2):
        clock.now += later
        with pytest.raises(NoData, match="no GPU"):
            collector.collect()
    assert len(looks) == 2


def test_64_gpus_and_adapters_are_looked_at(tmp_path, monkeypatch):
    for index in range(65):
        text = f"GPU UUID: GPU-{index:08x}-0000-0000-0000-000000000000"
        write(tmp_path / f"driver/nvidia/gpus/0000:{index:02x}:00.0/information", text)
        (tmp_path / f"class/infiniband/mlx5_{index:02d}").mkdir(parents=True)
    assert len(nvidia_gpus(tmp_path)) == 64
    monkeypatch.setattr("rankscope_agent.sources.topology.collector.locate", lambda place: place)
    assert len(adapters(tmp_path)) == 64


@pytest.mark.parametrize(
    ("below", "way"), [("0000:1b:00.0", "PIX"), ("0000:1b:00.0/0000:1c:00.0", "PXB")]
)
def test_devices_two_steps_below_a_switch_share_it(below, way):
    assert distance(GPU, at(f"pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/{below}")) == way
