"""Ways for RDMA adapters to reach GPUs' memory, by what trees like sysfs show."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.sources.rdma.collector import RdmaCollector
from rankscope_agent.sources.rdma.gpudirect import PEER_MEMORY, samples
from rankscope_agent.sources.rdma.tree import RdmaTree
from rdma_files import add_port, write

LINUX = "6.8.0-45-generic"


@pytest.fixture
def sysfs(tmp_path) -> Path:
    """A node with an adapter and NVIDIA's open driver."""
    add_port(tmp_path)
    write(tmp_path / "module" / "nvidia" / "taint", "OE")
    return tmp_path


def ways(sysfs: Path, release: str = LINUX) -> dict[str, float]:
    found = list(samples(sysfs, release))
    assert {one.metric for one in found} <= {metrics.GPUDIRECT}
    return {one.labels[0]: float(one.value) for one in found}


@pytest.mark.parametrize("module", PEER_MEMORY)
def test_any_module_that_nccl_takes_is_peer_memory(sysfs, module):
    assert ways(sysfs)["peer_memory"] == 0
    write(sysfs / module, "1.3")
    assert ways(sysfs)["peer_memory"] == 1


@pytest.mark.parametrize(
    ("taint", "release", "there"),
    [
        ("OE", LINUX, 1),
        ("", "5.12.0", 1),
        ("", "5.11.22", 0),
        ("OE", "5.4.0-150-generic", 0),
        ("OE", "4.18.0-553.el8", 0),
        ("POE", LINUX, 0),
        ("OE", "", 0),
    ],
)
def test_dma_buf_takes_the_open_driver_and_a_new_kernel(sysfs, taint, release, there):
    write(sysfs / "module" / "nvidia" / "taint", taint)
    assert ways(sysfs, release)["dma_buf"] == there


def test_which_driver_it_is_may_stay_unknown(sysfs):
    (sysfs / "module" / "nvidia" / "taint").unlink()
    assert ways(sysfs) == {"peer_memory": 0}


def test_without_a_driver_or_an_adapter_for_it_there_is_nothing_to_say(sysfs, tmp_path):
    driver = tmp_path / "bus" / "drivers" / "efa"
    driver.mkdir(parents=True)
    device = sysfs / "class" / "infiniband" / "mlx5_0" / "device"
    device.mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(driver)
    assert ways(sysfs) == {}, "EFA needs neither"
    (device / "driver").unlink()
    (sysfs / "module" / "nvidia" / "taint").unlink()
    (sysfs / "module" / "nvidia").rmdir()
    assert ways(sysfs) == {}, "no driver of NVIDIA's"


def test_a_module_that_is_loaded_later_is_seen(sysfs):
    now = 0.0
    collector = RdmaCollector(RdmaTree(sysfs, 100, everything=False), sysfs, lambda: now, LINUX)

    def value() -> float:
        taken = {one.labels: one.value for one in collector.collect() if one.metric.name == NAME}
        return float(taken["peer_memory",])

    assert value() == 0
    write(sysfs / PEER_MEMORY[-1], "590")
    now = 60.0
    assert value() == 1


NAME = "rankscope_gpudirect_rdma"
