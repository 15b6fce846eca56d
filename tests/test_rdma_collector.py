"""RDMA ports in trees like sysfs', followed as they change, break and go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.contract.model import Metric
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.rdma.collector import RdmaCollector
from rankscope_agent.sources.rdma.tree import RdmaTree
from rdma_files import COUNTERS, HW_COUNTERS, add_port, write

MAX_PORTS = 64
MAX_SERIES = 96
RESCAN_SECONDS = 10.0

BUDGET = 28  # series that a port may have while nothing rare has happened


class Node:
    """A collector over a tree, with a clock of its own."""

    def __init__(self, sysfs: Path, *, everything: bool = False, descriptors: int = 10_000):
        self.now = 100.0
        self.tree = RdmaTree(sysfs, descriptors, everything=everything)
        self.collector = RdmaCollector(self.tree, sysfs, lambda: self.now)

    def look(self) -> dict[tuple[Metric, tuple[str, ...]], float]:
        self.now += 1
        samples = list(self.collector.collect())
        series = {(sample.metric, sample.labels): sample.value for sample in samples}
        assert len(series) == len(samples), "a series came twice"
        return series

    def look_later(self):
        self.now += RESCAN_SECONDS
        return self.look()


@pytest.fixture
def sysfs(tmp_path):
    return tmp_path / "sys"


@pytest.fixture
def node(sysfs):
    made = Node(sysfs)
    yield made
    made.tree.close()


ONE = ("mlx5_0", "1")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def open_files() -> set[Path]:
    return {link.resolve() for link in Path("/proc/self/fd").iterdir()}


def test_a_port_says_its_state_rate_and_counters_in_base_units(sysfs, node):
    add_port(sysfs)
    series = node.look()
    assert series[metrics.PORT_STATE, ONE] == 4
    assert series[metrics.PORT_PHYSICAL_STATE, ONE] == 5
    assert series[metrics.PORT_RATE, ONE] == 50e9
    assert series[metrics.TRANSMIT_BYTES, ONE] == 4000
    assert series[metrics.RECEIVE_PACKETS, ONE] == 40
    assert series[metrics.CONGESTION, (*ONE, "cnp_sent")] == 5
    assert (metrics.PORT_INFO, (*ONE, "InfiniBand", "4X", "NDR", "")) in series
    info = ("mlx5_0", "28.41.1000", "MT_1", "MT4129", "", "", "", "")
    assert (metrics.DEVICE_INFO, info) in series


def test_what_alerts_use_is_zero_from_the_start_and_the_rest_absent_until_it_happens(sysfs, node):
    port = add_port(sysfs)
    series = node.look()
    assert series[metrics.HW_EVENTS, (*ONE, "out_of_sequence")] == 0
    assert series[metrics.LINK_FLAPS, ONE] == 0
    assert (metrics.HW_EVENTS, (*ONE, "req_cqe_error")) not in series
    assert len(series) <= BUDGET
    write(port / "hw_counters" / "req_cqe_error", 3)
    assert node.look()[metrics.HW_EVENTS, (*ONE, "req_cqe_error")] == 3


def test_a_page_printed_once_holds_the_zeros_as_well(sysfs):
    add_port(sysfs)
    series = Node(sysfs, everything=True).look()
    assert series[metrics.HW_EVENTS, (*ONE, "req_cqe_error")] == 0
    assert series[metrics.HW_AGE, ONE] == 0.012
    counted = [labels for metric, labels in series if metric.kind == "counter"]
    assert len(counted) == len(COUNTERS) + len(HW_COUNTERS) - 1 + 1  # less lifespan, and flaps


def test_counters_without_a_value_are_absent_and_cost_nothing_else(sysfs, node):
    values = dict(COUNTERS, port_xmit_data="N/A (no PMA)", symbol_error=-1, port_rcv_data=2**64)
    add_port(sysfs, counters=values)
    series = node.look()
    assert (metrics.TRANSMIT_BYTES, ONE) not in series
    assert (metrics.RECEIVE_BYTES, ONE) not in series
    assert (metrics.PORT_ERRORS, (*ONE, "symbol_error")) not in series
    assert series[metrics.TRANSMIT_PACKETS, ONE] == 30
    assert (metrics.UNREADABLE, ONE) not in series


def test_a_file_that_cannot_be_read_costs_itself_and_is_never_asked_again(sysfs, node):
    port = add_port(sysfs)
    bad = port / "counters" / "symbol_error"
    bad.unlink()
    bad.mkdir()
    series = node.look()
    assert series[metrics.UNREADABLE, ONE] == 1
    assert series[metrics.TRANSMIT_BYTES, ONE] == 4000
    bad.rmdir()
    write(bad, 9)
    assert (metrics.PORT_ERRORS, (*ONE, "symbol_error")) not in node.look_later()


def test_a_folder_in_which_nothing_can_be_read_is_given_up_after_two_attempts(sysfs, node, caplog):
    port = add_port(sysfs, counters={})
    for name in COUNTERS:
        (port / "counters" / name).mkdir(parents=True)
    series = node.look()
    assert series[metrics.UNREADABLE, ONE] == len(COUNTERS)
    assert series[metrics.CONGESTION, (*ONE, "cnp_sent")] == 5
    assert series[metrics.PORT_STATE, ONE] == 4
    for name in COUNTERS:  # readable from now on, and yet not read: nobody asks again
        (port / "counters" / name).rmdir()
        write(port / "counters" / name, 1)
    assert (metrics.TRANSMIT_BYTES, ONE) not in node.look_later()
    assert caplog.text.count("none is read again") == 1


def test_a_device_that_comes_back_is_read_anew(sysfs, node):
    port = add_port(sysfs, counters={})
    (port / "counters" / "symbol_error").mkdir(parents=True)
    assert node.look()[metrics.UNREADABLE, ONE] == 1
    kept = port.rename(port.parent / "old")  # its inode is not given to the new folder
    add_port(sysfs)
    shutil.rmtree(kept)
    assert (metrics.UNREADABLE, ONE) not in node.look_later()


def test_a_link_that_goes_down_between_two_looks_is_a_flap(sysfs, node):
    port = add_port(sysfs)
    node.look()
    write(port / "state", "1: DOWN")
    series = node.look()
    assert series[metrics.LINK_FLAPS, ONE] == 1
    assert series[metrics.PORT_STATE, ONE] == 1
    write(port / "state", "4: ACTIVE")
    assert node.look()[metrics.LINK_FLAPS, ONE] == 1


@pytest.mark.parametrize(
    ("state", "flaps"), [("5: ACTIVE_DEFER", 0), ("3: ARMED", 1), ("2: INIT", 1)]
)
def test_a_link_that_is_active_with_errors_is_up(sysfs, node, state, flaps):
    port = add_port(sysfs)
    node.look()
    write(port / "state", state)
    assert node.look()[metrics.LINK_FLAPS, ONE] == flaps
    write(port / "state", "1: DOWN")
    assert node.look()[metrics.LINK_FLAPS, ONE] == 1


def test_a_flap_shorter_than_a_look_counts_by_the_port(sysfs, node):
    port = add_port(sysfs)
    node.look()
    write(port / "counters" / "link_downed", 2)
    series = node.look()
    assert series[metrics.LINK_FLAPS, ONE] == 2
    assert series[metrics.LINK_DOWNED, ONE] == 2


def test_a_renegotiated_rate_is_seen_at_the_next_look(sysfs, node):
    port = add_port(sysfs)
    node.look()
    write(port / "rate", "200 Gb/sec (2X NDR)")
    series = node.look()
    assert series[metrics.PORT_RATE, ONE] == 25e9
    assert (metrics.PORT_INFO, (*ONE, "InfiniBand", "2X", "NDR", "")) in series


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("link_downed", 255),
        ("symbol_error", 65535),
        ("port_xmit_wait", 2**32 - 1),
        ("excessive_buffer_overrun_errors", 15),
    ],
)
def test_a_counter_at_the_end_of_its_bits_is_marked(sysfs, node, name, end):
    add_port(sysfs, counters=dict(COUNTERS, **{name: end}))
    assert node.look()[metrics.SATURATED, (*ONE, name)] == 1


@pytest.mark.parametrize(("name", "value"), [("link_downed", 254), ("port_xmit_wait", 2**40)])
def test_a_counter_below_or_wider_than_the_specification_is_not_marked(sysfs, node, name, value):
    add_port(sysfs, counters=dict(COUNTERS, **{name: value}))
    assert not [labels for metric, labels in node.look() if metric is metrics.SATURATED]


def test_a_port_without_the_standard_counters_shows_its_traffic_by_its_own(sysfs, node):
    hw = {"tx_bytes": 100, "rx_bytes": 200, "tx_pkts": 3, "retrans_pkts": 0, "lifespan": 10}
    add_port(sysfs, "efa_0", counters={}, hw_counters=hw)
    series = node.look()
    assert series[metrics.TRANSMIT_BYTES, ("efa_0", "1")] == 100
    assert series[metrics.HW_EVENTS, ("efa_0", "1", "retrans_pkts")] == 0


def test_two_counters_of_the_same_traffic_are_two_series(sysfs, node):
    add_port(sysfs, hw_counters={"tx_bytes": 3999})
    series = node.look()
    assert series[metrics.TRANSMIT_BYTES, ONE] == 4000
    assert series[metrics.HW_BYTES, (*ONE, "tx_bytes")] == 3999


def test_counters_of_a_whole_device_have_no_port(sysfs, node):
    add_port(sysfs)
    write(sysfs / "class" / "infiniband" / "mlx5_0" / "hw_counters" / "cmds_err", 2)
    assert node.look()[metrics.DEVICE_EVENTS, ("mlx5_0", "cmds_err")] == 2


def test_files_and_ports_that_vanish_cost_themselves_and_come_back(sysfs, node):
    port = add_port(sysfs)
    add_port(sysfs, "mlx5_1")
    node.look()
    (port / "counters" / "link_downed").unlink()
    shutil.rmtree(sysfs / "class" / "infiniband" / "mlx5_1")
    series = node.look_later()
    assert (metrics.LINK_DOWNED, ONE) not in series
    assert series[metrics.TRANSMIT_BYTES, ONE] == 4000
    assert not [labels for _, labels in series if labels[:1] == ("mlx5_1",)]
    write(port / "counters" / "link_downed", 1)
    assert node.look_later()[metrics.LINK_DOWNED, ONE] == 1


def test_what_a_vanished_file_said_last_is_not_said_again(sysfs):
    port = add_port(sysfs, counters=dict(COUNTERS, link_downed=255))
    write(sysfs / "class" / "infiniband" / "mlx5_0" / "hw_counters" / "cmds_err", 2)
    node = Node(sysfs, descriptors=0)
    assert node.look()[metrics.SATURATED, (*ONE, "link_downed")] == 1
    (port / "counters" / "link_downed").unlink()
    (sysfs / "class" / "infiniband" / "mlx5_0" / "hw_counters" / "cmds_err").unlink()
    series = node.look()
    assert (metrics.LINK_DOWNED, ONE) not in series
    assert (metrics.SATURATED, (*ONE, "link_downed")) not in series
    assert (metrics.DEVICE_EVENTS, ("mlx5_0", "cmds_err")) not in series
    write(sysfs / "class" / "infiniband" / "mlx5_0" / "hw_counters" / "cmds_err", 3)
    assert node.look()[metrics.DEVICE_EVENTS, ("mlx5_0", "cmds_err")] == 3
    node.tree.close()


def test_a_file_replaced_by_another_is_read_anew(sysfs, node):
    port = add_port(sysfs)
    node.look()
    write(port / "counters" / "new", 77)
    (port / "counters" / "new").rename(port / "counters" / "link_downed")
    assert node.look_later()[metrics.LINK_DOWNED, ONE] == 77


def test_loops_of_links_and_links_for_counters_are_not_followed(sysfs, node, tmp_path):
    port = add_port(sysfs)
    root = sysfs / "class" / "infiniband"
    (root / "loop").symlink_to(root / "loop")
    (port.parent / "2").symlink_to(port.parent / "2")
    write(tmp_path / "secret", 42)
    (port / "hw_counters" / "stolen").symlink_to(tmp_path / "secret")
    series = node.look()
    assert (metrics.HW_EVENTS, (*ONE, "stolen")) not in series
    assert {labels[0] for _, labels in series} == {"mlx5_0"}


def test_a_device_reached_by_a_link_is_read_as_in_sysfs(tmp_path, node, sysfs):
    place = tmp_path / "devices" / "0000:3b:00.0"
    add_port(place)
    write(place / "numa_node", 1)
    real = place / "class" / "infiniband" / "mlx5_0"
    (real / "device").symlink_to(place)
    (sysfs / "class" / "infiniband").mkdir(parents=True)
    (sysfs / "class" / "infiniband" / "mlx5_0").symlink_to(real)
    series = node.look()
    (info,) = [labels[5:] for m, labels in series if m is metrics.DEVICE_INFO]
    assert info == ("0000:3b:00.0", "1", "physical")


@pytest.mark.parametrize("place", ["0000:3b:00.2", "0000:3b:00.0/mlx5_core.sf.4"])
def test_virtual_functions_and_subfunctions_are_named_as_such(tmp_path, node, sysfs, place):
    add_port(sysfs)
    function = tmp_path / "devices" / place
    function.mkdir(parents=True)
    if "sf" not in place:
        (function / "physfn").symlink_to(tmp_path)
    (sysfs / "class" / "infiniband" / "mlx5_0" / "device").symlink_to(function)
    assert [labels[-1] for m, labels in node.look() if m is metrics.DEVICE_INFO] == ["virtual"]


def test_ports_and_series_are_bounded_and_what_is_left_off_is_said(sysfs, node):
    hw = {f"event_{index}": 1 for index in range(MAX_SERIES + 50)} | {"bad name": 1}
    for index in range(MAX_PORTS + 6):
        add_port(sysfs, f"mlx5_{index}", counters={}, hw_counters=hw if index == 0 else {})
    series = node.look()
    assert series[metrics.PORTS_LEFT_OFF, ()] == 6
    assert series[metrics.LEFT_OFF, ONE] == 51
    assert ("mlx5_63", "1") in [labels for m, labels in series if m is metrics.PORT_STATE]


def test_physical_functions_come_before_virtual_ones(sysfs, node):
    for index in range(MAX_PORTS + 1):
        add_port(sysfs, f"mlx5_{index}", counters={}, hw_counters={})
    (sysfs / "class" / "infiniband" / "mlx5_0" / "device" / "physfn").mkdir(parents=True)
    assert (metrics.PORT_STATE, ("mlx5_0", "1")) not in node.look()


def test_without_descriptors_to_spare_files_are_opened_each_time(sysfs):
    port = add_port(sysfs)
    node = Node(sysfs, descriptors=2)
    before = node.look()
    assert before[metrics.RECEIVE_PACKETS, ONE] == 40
    write(port / "counters" / "port_rcv_packets", 41)
    assert node.look()[metrics.RECEIVE_PACKETS, ONE] == 41
    node.tree.close()


def test_counters_that_no_series_uses_are_not_read_again(sysfs, node):
    port = add_port(sysfs)
    node.look()
    unused = port / "counters" / "unicast_xmit_packets"
    assert unused not in open_files()
    assert port / "counters" / "port_xmit_packets" in open_files()
    everything = Node(sysfs, everything=True)
    assert everything.look()[metrics.CAST_PACKETS, (*ONE, "transmit", "unicast")] == 30
    assert unused in open_files()
    everything.tree.close()


def test_no_descriptor_is_left_open(sysfs):
    before = open_descriptors()
    port = add_port(sysfs)
    bad = port / "counters" / "symbol_error"
    bad.unlink()
    bad.mkdir()
    add_port(sysfs, "mlx5_1", hw_counters={"tx_bytes": 1})
    node = Node(sysfs)
    for _ in range(3):
        node.look_later()
    shutil.rmtree(sysfs / "class" / "infiniband" / "mlx5_1")
    node.look_later()
    node.tree.close()
    assert open_descriptors() == before


def test_a_node_without_rdma_says_so(sysfs, node):
    (sysfs / "class").mkdir(parents=True)
    with pytest.raises(NoData, match=r"no RDMA device in .*class/infiniband"):
        node.look()


@pytest.mark.parametrize(("link_layer", "shown"), [("InfiniBand", False), ("Ethernet", True)])
def test_congestion_counters_of_roce_are_shown_at_zero_where_the_port_is_ethernet(
    sysfs, node, link_layer, shown
):
    add_port(sysfs, hw_counters={"np_cnp_sent": 0}, link_layer=link_layer)
    assert ((metrics.CONGESTION, (*ONE, "cnp_sent")) in node.look()) is shown
