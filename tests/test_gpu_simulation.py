"""The simulated node: each scenario is seen on the page as what it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gpu_nodes import Clock, library, read, session_of
from rankscope_agent.collecting.registry import all_collectors
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.settings.simulation import SCENARIOS, parse_simulation
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.gpus.simulation.ports import (
    LOCK,
    MEMORY_FOLDER,
    PREFIX,
    PortTree,
    remove_abandoned,
    simulated_sysfs,
)
from rankscope_agent.sources.pods.directory import PodDirectory
from ring_writer import RingWriter
from running_agent import PATIENCE_SECONDS, running_agent

FLAG_CPU_WAIT = 1 << 6
FLAP_DOWN = 6.0
FLAP_PERIOD = 30.0
PERIOD_SECONDS = 10.0
REOPEN_SECONDS = 5.0
MAX_SERIES_OF_A_GPU = 55
MAX_SERIES_OF_A_NODE = 900
# What a page shows after several looks: shares of a time, and what a rank's threads waited.
LATE_SERIES = (
    *("\nrankscope_gpu_dram_active_ratio{", "\nrankscope_gpu_utilization_ratio{"),
    *("\nrankscope_rank_starved_seconds_total{", "\nrankscope_cpu_wait_seconds_total{"),
)
ENDED = re.compile(r'^rankscope_collector_success\{collector="(\w+)"\}', re.MULTILINE)


def pages(text, *seconds):
    """Return the last page of a node, read first at the start and then after each time."""
    clock = Clock()
    session = session_of(library(text, clock), clock)
    page = read(session)
    for after in seconds:
        clock.now += after
        page = read(session)
    return page


def others(page, metric, *labels, count=8):
    return [page.value(metric, *labels, gpu=gpu) for gpu in range(count) if gpu != 5]


def test_healthy_gpus_are_all_alike():
    page = pages("h100x8", 1)
    for metric, labels in (
        (metrics.GPU_CLOCK, ("sm",)),
        (metrics.GPU_CLOCK_EVENT, ("hw_thermal_slowdown",)),
        (metrics.GPU_RECOVERY_ACTION, ("none",)),
        (metrics.GPU_LOST, ()),
    ):
        assert len({page.value(metric, *labels, gpu=gpu) for gpu in range(8)}) == 1


def test_memory_under_load_is_a_little_cooler_than_the_core():
    page = pages("h100x8", 1)
    core, memory = (page.value(metrics.GPU_TEMPERATURE, one, gpu=0) for one in ("core", "memory"))
    assert 3 < core - memory < 8


def test_thermal_slowdown_is_hot_slow_and_counted_on_one_gpu():
    page = pages("h100x8:thermal", 10)
    assert page.value(metrics.GPU_CLOCK_EVENT, "hw_thermal_slowdown", gpu=5) == 1
    assert page.value(metrics.GPU_CLOCK_EVENT, "hw_slowdown", gpu=5) == 1
    seconds = page.value(metrics.GPU_CLOCK_EVENT_SECONDS, "hw_thermal_slowdown", gpu=5)
    assert seconds == pytest.approx(610, abs=1)
    assert page.value(metrics.GPU_TEMPERATURE, "core", gpu=5) > 85
    assert page.value(metrics.GPU_TEMPERATURE_MARGIN, gpu=5) < 2
    assert page.value(metrics.GPU_CLOCK, "sm", gpu=5) == 1215e6
    assert set(others(page, metrics.GPU_CLOCK, "sm")) == {1980e6}
    assert set(others(page, metrics.GPU_CLOCK_EVENT, "hw_thermal_slowdown")) == {0}


def test_peers_of_a_slow_gpu_wait_for_it():
    slow, healthy = pages("h100x8:thermal", 10), pages("h100x8", 10)
    assert slow.value(metrics.GPU_TENSOR_ACTIVE, gpu=0) < slow.value(
        metrics.GPU_TENSOR_ACTIVE, gpu=5
    )
    assert slow.value(metrics.GPU_POWER, gpu=0) < healthy.value(metrics.GPU_POWER, gpu=0)


def test_a_power_cap_is_a_lower_limit_and_a_lower_clock():
    page = pages("h100x8:power-cap", 1)
    assert page.value(metrics.GPU_POWER_LIMIT, "enforced", gpu=5) == 400
    assert page.value(metrics.GPU_POWER_LIMIT, "default", gpu=5) == 700
    assert page.value(metrics.GPU_CLOCK_EVENT, "sw_power_cap", gpu=5) == 1
    assert page.value(metrics.GPU_POWER, gpu=5) <= 400
    assert set(others(page, metrics.GPU_POWER_LIMIT, "enforced")) == {700}


def test_xid_79_is_an_event_and_a_lost_gpu():
    page = pages("h100x8:xid79", 1)
    assert page.value(metrics.GPU_XIDS, "79", gpu=5) == 1
    assert page.value(metrics.GPU_LOST, gpu=5) == 1
    assert page.of(metrics.GPU_CLOCK, 5) == {}
    assert set(others(page, metrics.GPU_LOST)) == {0}


def test_an_ecc_storm_grows_and_asks_for_a_reset():
    before, after = pages("h100x8:ecc-storm"), pages("h100x8:ecc-storm", 10)
    kinds = ("corrected", "aggregate")
    grown = after.value(metrics.GPU_ECC_ERRORS, *kinds, gpu=5) - before.value(
        metrics.GPU_ECC_ERRORS, *kinds, gpu=5
    )
    assert grown == pytest.approx(400, abs=2)
    assert after.value(metrics.GPU_REMAP_PENDING, gpu=5) == 1
    assert after.of(metrics.GPU_RECOVERY_ACTION, 5) == {("gpu_reset",): 1}
    assert set(others(after, metrics.GPU_ECC_ERRORS, *kinds)) == {0}


def test_nvlink_errors_name_their_link():
    page = pages("h100x8:nvlink", PERIOD_SECONDS, PERIOD_SECONDS)
    assert {link for link, _ in page.of(metrics.GPU_NVLINK_LINK_ERRORS, 5)} == {"3"}
    assert page.of(metrics.GPU_NVLINK_LINK_SHARE, 5).keys() == {("3",)}
    assert page.value(metrics.GPU_NVLINK_ERRORS, "crc_flit", gpu=5) > 0
    assert page.of(metrics.GPU_NVLINK_LINK_ERRORS, 4) == {}


def test_a_driver_reload_leaves_no_values_and_then_counters_from_zero():
    energy = pages("h100x8:driver-reload", 4).value(metrics.GPU_ENERGY)
    away = pages("h100x8:driver-reload", 6)
    assert [away.value(metrics.GPU_UNRESPONSIVE, gpu=gpu) for gpu in range(8)] == [1] * 8
    assert away.of(metrics.GPU_CLOCK) == {}
    back = pages("h100x8:driver-reload", 6, REOPEN_SECONDS, 2 * REOPEN_SECONDS, 1)
    assert back.value(metrics.GPU_UNRESPONSIVE) == 0
    assert 0 < back.value(metrics.GPU_ENERGY) < energy / 10


def test_a_hung_call_is_an_unresponsive_gpu():
    clock = Clock()
    nvml = library("h100x8:hung", clock)
    page = read(session_of(nvml, clock, 0.3))
    nvml.release()
    assert page.value(metrics.GPU_UNRESPONSIVE, gpu=5) == 1
    assert set(others(page, metrics.GPU_UNRESPONSIVE)) == {0}


@pytest.mark.parametrize("model", ["h100x8", "h200x8", "a100x8", "l40sx4"])
def test_series_of_a_gpu_stay_within_their_budget(model):
    page = pages(model, PERIOD_SECONDS, PERIOD_SECONDS)
    counts = [page.number(gpu) for gpu in range(int(model[-1]))]
    assert max(counts) <= MAX_SERIES_OF_A_GPU


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_scenario_leaves_the_budget_of_a_node(scenario):
    clock = Clock()
    nvml = library(f"h100x8:{scenario}", clock)
    session = session_of(nvml, clock, 0.5)
    read(session)
    clock.now += PERIOD_SECONDS
    assert len(read(session).samples) <= 8 * MAX_SERIES_OF_A_GPU + 10
    nvml.release()


@pytest.mark.parametrize("scenario", ["thermal", "power-cap", "ecc-storm", "nvlink"])
def test_counters_never_fall(scenario):
    clock = Clock()
    session = session_of(library(f"h100x8:{scenario}", clock), clock)
    before: dict = {}
    for _ in range(8):
        page = read(session)
        now = {k: v for k, v in page.series.items() if k[0].endswith("_total")}
        assert all(now[key] >= value for key, value in before.items() if key in now)
        before = now
        clock.now += 1.7


@pytest.mark.parametrize("text", ["h100x8:thermal@7", "h200x2:flap@1+power-cap@all", "a100x1-mig"])
def test_nodes_are_read_as_they_are_asked_for(text):
    simulation = parse_simulation(text)
    assert simulation.text == text
    assert simulation.mig is ("-mig" in text)


@pytest.fixture
def folder():
    """Give a folder in memory where there is one, as the agent has it."""
    memory = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def ports(folder, text):
    clock = Clock()
    tree = PortTree(folder, parse_simulation(text), clock)
    tree.write()
    return tree, clock


def port_file(folder, port, name):
    place = folder / "class/infiniband" / f"mlx5_{port}" / "ports/1"
    return (place / name).read_text()


def test_a_congested_port_waits_and_carries_less(folder):
    tree, clock = ports(folder, "h100x8:congestion@4")
    before = {port: int(port_file(folder, port, "counters/port_xmit_data")) for port in (3, 4)}
    clock.now += 10
    tree.write()
    sent = {
        port: int(port_file(folder, port, "counters/port_xmit_data")) - before[port]
        for port in (3, 4)
    }
    assert sent[4] == pytest.approx(0.45 * sent[3], rel=0.01)
    waits = [int(port_file(folder, port, "counters/port_xmit_wait")) for port in (3, 4)]
    assert waits[1] > 100 * waits[0]
    assert int(port_file(folder, 4, "hw_counters/np_ecn_marked_roce_packets")) > 0
    assert int(port_file(folder, 3, "hw_counters/np_ecn_marked_roce_packets")) == 0


def test_a_flapping_port_goes_down_and_comes_back(folder):
    tree, clock = ports(folder, "h100x8:flap@1")
    counted = int(port_file(folder, 1, "counters/link_downed"))
    clock.now += FLAP_PERIOD - FLAP_DOWN + 1
    tree.write()
    assert port_file(folder, 1, "state") == "1: DOWN\n"
    assert int(port_file(folder, 1, "counters/link_downed")) == counted + 1
    assert port_file(folder, 0, "state") == "4: ACTIVE\n"
    clock.now += FLAP_DOWN
    tree.write()
    assert port_file(folder, 1, "state") == "4: ACTIVE\n"


def test_files_are_written_in_place_for_readers_that_keep_them_open(folder):
    tree, clock = ports(folder, "h100x8:flap@1")
    kept = (folder / "class/infiniband/mlx5_1/ports/1/state").open("rb", buffering=0)
    with kept:
        assert kept.read() == b"4: ACTIVE\n"
        clock.now += FLAP_PERIOD - 1
        tree.write()
        kept.seek(0)
        assert kept.read() == b"1: DOWN\n"


def test_trees_of_killed_agents_are_removed_and_those_in_use_are_not(folder):
    with simulated_sysfs(parse_simulation("l40sx1")) as used:
        abandoned, foreign = folder / f"{PREFIX}x", folder / f"{PREFIX}y"
        for made in (abandoned, foreign):
            (made / "class").mkdir(parents=True)
        (abandoned / LOCK).touch()
        alive = folder / f"{PREFIX}z"
        alive.symlink_to(used)
        remove_abandoned(folder)
        remove_abandoned(used.parent)
        assert not abandoned.exists()
        assert foreign.exists(), "it may be one that is just being made"
        assert (alive / "class/infiniband").is_dir()
    assert not used.exists()


def test_the_agent_prints_a_whole_simulated_node_and_says_that_it_is_one():
    command = [sys.executable, "-m", "rankscope_agent", "--simulate=h100x8:thermal", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert 'simulated="h100x8:thermal"' in done.stdout
    for collector in ("nvml", "rdma"):
        success = rf'^rankscope_collector_success\{{collector="{collector}"\}} 1.0$'
        assert re.search(success, done.stdout, re.MULTILINE)
    assert 'rankscope_rdma_port_state{device="mlx5_8",port="1"} 4.0' in done.stdout


def test_a_simulated_node_with_ranks_stays_within_the_series_of_a_node(tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir()
    ranks = [
        RingWriter(rings, f"{rank}-1.ring", rank=rank, local_rank=rank, world_size=8)
        for rank in range(8)
    ]
    for rank in ranks:
        rank.step(3, flags=2 | FLAG_CPU_WAIT, compute_ns=50_000_000)
    every = set(all_collectors(PodDirectory(), FlightWindows()))
    with running_agent(tmp_path, "--simulate=h100x8:thermal") as agent:
        deadline = time.monotonic() + PATIENCE_SECONDS
        page = agent.get("/metrics")
        while not (every <= set(ENDED.findall(page)) and all(name in page for name in LATE_SERIES)):
            assert time.monotonic() < deadline, page
            time.sleep(0.1)
            page = agent.get("/metrics")
    for rank in ranks:
        rank.end()
    # What other processes of this machine say of themselves is not of the node.
    foreign = re.compile(r'job_id="(?!team/job")')
    series = [
        line
        for line in page.splitlines()
        if line.startswith("rankscope_") and not foreign.search(line)
    ]
    assert sum(line.startswith("rankscope_gpu_nic_info") for line in series) == 8
    assert 700 < len(series) <= MAX_SERIES_OF_A_NODE


def of_gpu(page, gpu):
    """Return the series of a GPU on a page by name, with the value of the last of each name."""
    line = re.compile(rf'^(rankscope_gpu_\w+)\{{.*gpu="{gpu}".*\}} (\S+)$', re.MULTILINE)
    return dict(line.findall(page))


def test_a_hung_call_takes_only_its_gpu_off_the_page_and_freezes_no_value(tmp_path):
    flags = ("--simulate=h100x4:hung@3", "--collector.deadline=1")
    with running_agent(tmp_path, *flags) as agent:
        seen = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len({page.get("rankscope_gpu_energy_joules_total") for page in seen}) < 4:
            assert time.monotonic() < deadline, "the others' values do not go on"
            time.sleep(0.2)
            page = agent.get("/metrics")
            hung = of_gpu(page, 3)
            assert hung.get("rankscope_gpu_unresponsive", "1.0") == "1.0"
            assert "rankscope_gpu_energy_joules_total" not in hung
            seen.append(of_gpu(page, 0))
        assert hung.keys() >= {"rankscope_gpu_info", "rankscope_gpu_unresponsive"}
        assert 'collector_success{collector="nvml"} 1.0' in page
