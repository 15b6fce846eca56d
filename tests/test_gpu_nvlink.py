"""Single NVLinks: shown where they differ from their siblings, and only there."""

from __future__ import annotations

import pytest

from gpu_nodes import Clock, FaultyDevice, device
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.sources.gpus.nvlink import NvlinkReader
from rankscope_agent.sources.gpus.nvml import NvmlError

UNKNOWN = 999
PERIOD_SECONDS = 10.0


def looks(gpu, clock, times, *, erring=False):
    reader = NvlinkReader()
    found = ()
    for _ in range(times):
        found = reader.read(gpu, clock.now, erring=erring)
        clock.now += PERIOD_SECONDS
    return {(metric.name, labels): value for metric, labels, value in found}


def test_healthy_links_are_one_number():
    clock = Clock()
    found = looks(device("h100x8", 0, clock), clock, 3)
    assert found == {(metrics.GPU_NVLINKS_UP.name, ()): 18}


def test_a_link_that_errs_is_named_with_its_errors_and_its_share_of_the_traffic():
    clock = Clock()
    found = looks(device("h100x8:nvlink@2", 2, clock), clock, 3, erring=True)
    errors = metrics.GPU_NVLINK_LINK_ERRORS.name
    assert {labels[0] for name, labels in found if name == errors} == {"3"}
    assert found[errors, ("3", "crc_flit")] > found[errors, ("3", "replay")] > 0
    assert abs(found[metrics.GPU_NVLINK_LINK_SHARE.name, ("3",)] - 0.3) < 0.01
    assert [labels for name, labels in found if name == metrics.GPU_NVLINK_LINK_SHARE.name] == [
        ("3",)
    ]


def test_links_are_looked_at_once_a_period():
    clock = Clock()
    gpu = FaultyDevice(device("h100x8", 0, clock))
    reader = NvlinkReader()
    for _ in range(5):
        reader.read(gpu, clock.now, erring=False)
    assert gpu.calls.count("nvlink_active") == 18


def test_a_link_that_is_down_is_named_and_stays_named_when_it_is_back():
    clock = Clock()
    gpu = FaultyDevice(device("h100x8", 0, clock))
    down = {7}
    real = device("h100x8", 0, clock)
    gpu.nvlink_active = lambda link: real.nvlink_active(link) and link not in down
    reader = NvlinkReader()
    up = metrics.GPU_NVLINK_LINK_UP
    assert (up, ("7",), 0) in reader.read(gpu, clock.now, erring=False)
    down.clear()
    clock.now += PERIOD_SECONDS
    again = reader.read(gpu, clock.now, erring=False)
    assert (up, ("7",), 1) in again
    assert (metrics.GPU_NVLINKS_UP, (), 18) in again


def without_links(clock):
    """Return a GPU whose links exist and are all down."""
    gpu, real = FaultyDevice(device("h100x8", 0, clock)), device("h100x8", 0, clock)
    gpu.nvlink_active = lambda link: real.nvlink_active(link) and False
    return gpu


@pytest.mark.parametrize(
    "reader",
    [
        NvlinkReader("NVIDIA H100 NVL"),
        NvlinkReader("NVIDIA A800 40GB Active"),
        NvlinkReader(),
        NvlinkReader("NVIDIA A100-SXM4-40GB", mig=True),
    ],
    ids=["card", "card of a workstation", "unknown", "partitioned"],
)
def test_a_gpu_whose_links_may_be_unconnected_by_design_has_no_links(reader):
    clock = Clock()
    assert reader.read(without_links(clock), clock.now, erring=True) == ()


def test_a_board_whose_links_are_all_down_from_the_start_has_none_of_them_and_names_no_link():
    clock = Clock()
    reader = NvlinkReader("NVIDIA H100 80GB HBM3")
    for _ in range(2):
        found = reader.read(without_links(clock), clock.now, erring=True)
        assert found == ((metrics.GPU_NVLINKS_UP, (), 0),)
        clock.now += PERIOD_SECONDS
    repaired = reader.read(device("h100x8", 0, clock), clock.now, erring=False)
    assert repaired == ((metrics.GPU_NVLINKS_UP, (), 18),)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("NVIDIA A100 80GB PCIe", []),
        ("NVIDIA A100-PCIE-40GB", []),
        ("NVIDIA H100 NVL", []),
        ("NVIDIA RTX A6000", []),
        ("NVIDIA A40", []),
        ("Tesla V100-SXM2-32GB", ["3", "5"]),
        ("NVIDIA H100 80GB HBM3", ["3", "5"]),
        ("NVIDIA GB200", ["3", "5"]),
        ("", ["3", "5"]),
    ],
)
def test_links_of_a_card_that_no_bridge_connects_are_not_down(model, named):
    """Of the links of a board all are connected: one that is down at the start is down."""
    clock = Clock()
    gpu, real = FaultyDevice(device("h100x8", 0, clock)), device("h100x8", 0, clock)
    down = {3, 5}
    gpu.nvlink_active = lambda link: real.nvlink_active(link) and link not in down
    reader = NvlinkReader(model)

    def seen():
        clock.now += PERIOD_SECONDS
        found = reader.read(gpu, clock.now, erring=False)
        return {labels[0]: up for metric, labels, up in found if labels}

    assert seen() == dict.fromkeys(named, 0)
    down.add(7)
    assert seen() == dict.fromkeys([*named, "7"], 0)
    down.update(range(18))
    assert "7" in seen(), "links that were up are down, although none is up now"
    assert len(seen()) == (18 if named else 16)


def test_while_the_driver_refuses_nothing_old_is_told_and_it_is_asked_once_a_period():
    clock = Clock()
    gpu = FaultyDevice(device("h100x8", 0, clock))
    reader = NvlinkReader()
    healthy = reader.read(gpu, clock.now, erring=False)
    assert healthy == ((metrics.GPU_NVLINKS_UP, (), 18),)
    gpu.codes["nvlink_active"] = UNKNOWN
    for _ in range(3):
        clock.now += PERIOD_SECONDS
        asked = gpu.calls.count("nvlink_active")
        with pytest.raises(NvmlError):
            reader.read(gpu, clock.now, erring=False)
        assert reader.read(gpu, clock.now + PERIOD_SECONDS / 2, erring=False) == ()
        assert gpu.calls.count("nvlink_active") == asked + 1
    gpu.codes.clear()
    clock.now += PERIOD_SECONDS
    assert reader.read(gpu, clock.now, erring=False) == healthy
