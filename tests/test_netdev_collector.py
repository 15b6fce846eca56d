"""The node's interfaces in trees like sysfs': which are shown, summed up, or not the node's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope_agent.contract.metrics import netdev as metrics
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.netdev.collector import NetdevCollector
from rankscope_agent.sources.netdev.namespace import in_node_network, node_net
from rankscope_agent.sources.pid_namespace import shows_node_processes
from rdma_files import add_port, write

MAX_SHOWN = 32
SLOW_SECONDS = 10.0

HEADER = "Inter-|\n face |\n"


class Node:
    """A collector over trees, outside of the node's network unless told otherwise."""

    def __init__(self, root: Path, *, everything: bool = False):
        self.now = 1000.0
        self.sysfs, self.net = root / "sys", root / "proc" / "net"
        self.collector = NetdevCollector(
            self.sysfs, self.net, None, None, lambda: self.now, everything=everything
        )

    def look(self):
        self.now += SLOW_SECONDS
        samples = list(self.collector.collect())
        series = {(sample.metric, sample.labels): sample.value for sample in samples}
        assert len(series) == len(samples), "a series came twice"
        return series

    def add(self, name: str, pci: str = "", **files: object) -> Path:
        """Add an interface, a real one if it has a place on the PCI bus."""
        place = self.sysfs / "class" / "net" / name
        usual = {"operstate": "up", "mtu": 1500, "speed": 100_000, "carrier_up_count": 2}
        for file, text in (usual | {"carrier_down_count": 1} | files).items():
            write(place / file, text)
        for index, file in enumerate(("rx_bytes", "tx_bytes", "rx_errors", "tx_errors")):
            write(place / "statistics" / file, 10 + index)
        for file in ("rx_dropped", "tx_dropped", "rx_crc_errors"):
            write(place / "statistics" / file, 0)
        if pci:
            self.device(pci)
            (place / "device").symlink_to(self.sysfs / "devices" / pci)
        return place

    def device(self, pci: str, width: int = 16) -> Path:
        place = self.sysfs / "devices" / pci
        for file, text in (
            ("numa_node", 0),
            ("current_link_width", width),
            ("max_link_width", 16),
            ("current_link_speed", "32.0 GT/s PCIe"),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("aer_dev_correctable", "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0"),
        ):
            write(place / file, text)
        return place

    def dev_table(self, **counts: int) -> None:
        lines = (f"{name}: {n} 0 0 0 0 0 0 0 {n} 0 0 0 0 0 0 0\n" for name, n in counts.items())
        write(self.net / "dev", HEADER + "".join(lines))


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.collector.close()


PCI = "0000:3b:00.0"


def test_a_real_interface_says_its_state_speed_traffic_and_errors(node):
    node.add("eth0", PCI)
    series = node.look()
    assert series[metrics.UP, ("eth0",)] == 1
    assert series[metrics.SPEED, ("eth0",)] == 12.5e9
    assert series[metrics.CARRIER_CHANGES, ("eth0", "down")] == 1
    assert series[metrics.RECEIVE_BYTES, ("eth0",)] == 10
    assert series[metrics.ERRORS, ("eth0", "transmit")] == 13
    assert series[metrics.DROPPED, ("eth0", "receive")] == 0
    assert (metrics.INFO, ("eth0", "physical", PCI, "0", "", "1500")) in series
    assert series[metrics.PCI_LINK_RATIO, (PCI,)] == 1


def test_an_interface_that_is_down_has_no_speed_and_is_not_up(node):
    node.add("eth0", PCI, operstate="down", speed=-1)
    series = node.look()
    assert series[metrics.UP, ("eth0",)] == 0
    assert (metrics.SPEED, ("eth0",)) not in series


def test_odd_numbers_are_absent_and_cost_nothing_else(node):
    node.add("eth0", PCI, carrier_up_count="many", carrier_down_count=2**64, mtu=-1)
    series = node.look()
    assert not [labels for metric, labels in series if metric is metrics.CARRIER_CHANGES]
    assert series[metrics.RECEIVE_BYTES, ("eth0",)] == 10


def test_a_pod_that_sees_only_its_own_interface_has_no_data(node):
    node.add("eth0")
    with pytest.raises(NoData, match="only this pod's"):
        node.look()


def test_interfaces_of_pods_are_summed_up_beside_the_nodes(node):
    node.add("eth0", PCI)
    for index in range(2000):
        (node.sysfs / "class" / "net" / f"veth{index}").mkdir(parents=True)
    node.dev_table(lo=5, eth0=1, **{f"veth{index}": 3 for index in range(2000)})
    series = node.look()
    assert series[metrics.RECEIVE_BYTES, ("other",)] == 6000
    assert series[metrics.LEFT_OFF, ()] == 2000
    assert len(series) < 40


@pytest.mark.parametrize(("size", "received"), [(4 << 20, 7), ((4 << 20) + 1, None)])
def test_four_mebibytes_of_the_table_of_interfaces_are_read(node, size, received):
    node.add("eth0", PCI)
    node.add("veth1")
    last = "veth1: 7 0 0 0 0 0 0 0 7 0 0 0 0 0 0 0"
    filled = HEADER + "x" * (size - len(HEADER) - len(last) - 1)
    write(node.net / "dev", f"{filled}\n{last}")
    series = node.look()
    assert series.get((metrics.RECEIVE_BYTES, ("other",))) == received


def test_the_sum_of_others_never_falls_as_pods_go(node):
    node.add("eth0", PCI)
    node.add("veth1")
    node.dev_table(veth1=100, veth2=50)
    assert node.look()[metrics.RECEIVE_BYTES, ("other",)] == 150
    node.dev_table(veth1=110)
    assert node.look()[metrics.RECEIVE_BYTES, ("other",)] == 160
    node.dev_table(veth1=5)  # another interface of the same name
    assert node.look()[metrics.RECEIVE_BYTES, ("other",)] == 165


def test_a_table_that_could_not_be_read_once_counts_no_traffic_twice(node):
    node.add("eth0", PCI)
    node.add("veth1")
    node.dev_table(veth1=100)
    assert node.look()[metrics.RECEIVE_BYTES, ("other",)] == 100
    (node.net / "dev").unlink()
    assert node.look()[metrics.RECEIVE_BYTES, ("other",)] == 100
    node.dev_table(veth1=110)
    assert node.look()[metrics.RECEIVE_BYTES, ("other",)] == 110


def test_real_interfaces_beyond_the_limit_are_summed_up_too(node):
    for index in range(MAX_SHOWN + 3):
        node.add(f"eth{index}", f"0000:{index:02x}:00.0")
    node.dev_table(**{f"eth{index}": 1 for index in range(MAX_SHOWN + 3)})
    series = node.look()
    assert series[metrics.RECEIVE_BYTES, ("other",)] == 3
    assert len([labels for metric, labels in series if metric is metrics.UP]) == MAX_SHOWN


def test_virtual_functions_and_representors_are_not_the_nodes_interfaces(node):
    node.add("eth0", PCI)
    node.add("eth0v0", "0000:3b:01.0")
    (node.sysfs / "devices" / "0000:3b:01.0" / "physfn").mkdir()
    node.add("eth0_0", PCI, phys_port_name="pf0vf0")
    assert {labels[0] for metric, labels in node.look() if metric is metrics.UP} == {"eth0"}


def test_loops_of_links_and_files_among_interfaces_are_passed_over(node):
    node.add("eth0", PCI)
    root = node.sysfs / "class" / "net"
    (root / "loop").symlink_to(root / "loop")
    write(root / "bonding_masters", "bond0")
    assert node.look()[metrics.LEFT_OFF, ()] == 0


def test_an_interface_that_vanishes_costs_itself(node):
    node.add("eth0", PCI)
    gone = node.add("eth1", "0000:3c:00.0")
    node.look()
    gone.rename(gone.parent / "eth2")
    assert {labels[0] for metric, labels in node.look() if metric is metrics.UP} == {"eth0", "eth2"}


def test_a_bond_says_how_many_of_its_slaves_have_a_link(node):
    place = node.add("bond0")
    write(place / "bonding" / "slaves", "eth0 eth1")
    write(place / "lower_eth0" / "bonding_slave" / "mii_status", "up")
    write(place / "slave_eth1" / "bonding_slave" / "mii_status", "down")
    slave = node.add("eth0", PCI)
    (slave / "master").symlink_to(place)
    series = node.look()
    assert series[metrics.BOND_SLAVES, ("bond0", "configured")] == 2
    assert series[metrics.BOND_SLAVES, ("bond0", "active")] == 1
    assert (metrics.INFO, ("eth0", "physical", PCI, "0", "bond0", "1500")) in series


def test_congestion_control_switches_are_one_series_a_role(node):
    place = node.add("eth0", PCI)
    for priority in range(8):
        write(place / "ecn" / "roce_np" / "enable" / str(priority), int(priority in (3, 4)))
        write(place / "ecn" / "roce_rp" / "enable" / str(priority), 0)
    series = node.look()
    assert series[metrics.ECN_INFO, ("eth0", "np", "3,4")] == 1
    assert series[metrics.ECN_INFO, ("eth0", "rp", "")] == 1


def test_a_pci_link_below_its_largest_shows_what_lacks(node):
    node.add("eth0", PCI)
    node.device(PCI, width=8)
    series = node.look()
    assert series[metrics.PCI_LINK_RATIO, (PCI,)] == 0.5
    assert series[metrics.PCI_LINK_WIDTH, (PCI, "current")] == 8
    assert series[metrics.PCI_LINK_WIDTH, (PCI, "max")] == 16
    assert not [labels for metric, labels in series if metric is metrics.PCI_LINK_SPEED]


def test_pci_errors_have_a_type_and_new_ones_a_time(node):
    node.add("eth0", PCI)
    place = node.device(PCI)
    assert not [labels for metric, labels in node.look() if metric is metrics.AER_ERRORS]
    write(place / "aer_dev_correctable", "RxErr 2\nTOTAL_ERR_COR 2")
    series = node.look()
    assert series[metrics.AER_ERRORS, (PCI, "correctable", "RxErr")] == 2
    assert series[metrics.AER_LAST, (PCI,)] == node.now


def test_old_pci_errors_are_not_new(node):
    node.add("eth0", PCI)
    write(node.device(PCI) / "aer_dev_fatal", "DLP 3")
    series = node.look()
    assert series[metrics.AER_ERRORS, (PCI, "fatal", "DLP")] == 3
    assert (metrics.AER_LAST, (PCI,)) not in series


def test_adapters_without_a_network_interface_have_a_pci_link_too(node):
    node.add("eth0", PCI)
    add_port(node.sysfs)
    node.device("0000:5e:00.0")
    (node.sysfs / "class" / "infiniband" / "mlx5_0" / "device").symlink_to(
        node.sysfs / "devices" / "0000:5e:00.0"
    )
    assert node.look()[metrics.PCI_LINK_RATIO, ("0000:5e:00.0",)] == 1


def test_errors_of_rdma_adapters_interfaces_show_once_they_happen(node):
    place = node.add("ib0", PCI)
    (node.sysfs / "devices" / PCI / "infiniband").mkdir()
    series = node.look()
    assert (metrics.DROPPED, ("ib0", "receive")) not in series
    write(place / "statistics" / "rx_dropped", 4)
    write(place / "statistics" / "rx_crc_errors", 2)
    series = node.look()
    assert series[metrics.DROPPED, ("ib0", "receive")] == 4
    assert series[metrics.ERROR_DETAILS, ("ib0", "rx_crc_errors")] == 2


def test_the_nodes_tcp_is_read(node):
    node.add("eth0", PCI)
    write(node.net / "snmp", "Tcp: OutSegs RetransSegs\nTcp: 1000 7")
    write(node.net / "netstat", "TcpExt: TCPTimeouts ListenDrops\nTcpExt: 2 3")
    series = node.look()
    assert series[metrics.TCP_RETRANSMITTED, ()] == 7
    assert series[metrics.TCP_SENT, ()] == 1000
    assert series[metrics.TCP_EVENTS, ("timeouts",)] == 2
    assert series[metrics.TCP_EVENTS, ("listen_drops",)] == 3
    assert (metrics.TCP_EVENTS, ("listen_overflows",)) not in series


def procfs_of(root: Path, pid_namespace: str) -> Path:
    """Make a procfs with process 1 and ourselves, in a PID namespace of this name."""
    (root / "1" / "net").mkdir(parents=True)
    (root / "self" / "ns").mkdir(parents=True)
    (root / "self" / "ns" / "pid").symlink_to(pid_namespace)
    return root


def test_process_1_is_the_nodes_in_the_first_process_space_and_in_a_mounted_procfs(tmp_path):
    first = procfs_of(tmp_path / "first", "pid:[4026531836]")
    pod = procfs_of(tmp_path / "pod", "pid:[4026532280]")
    assert shows_node_processes(first, own=first)
    assert not shows_node_processes(pod, own=pod)
    assert shows_node_processes(first, own=pod)
    assert not shows_node_processes(tmp_path / "none", own=tmp_path / "none")


def test_tables_of_a_recorded_procfs_are_read_and_a_link_to_ones_own_is_not(tmp_path):
    recorded = tmp_path / "recorded"
    (recorded / "net").mkdir(parents=True)
    assert node_net(recorded) == recorded / "net"
    (tmp_path / "self" / "net").mkdir(parents=True)
    (tmp_path / "net").symlink_to("self/net")
    assert node_net(tmp_path) is None
    assert node_net(procfs_of(tmp_path / "host", "x")) == tmp_path / "host" / "1" / "net"


def test_another_networks_sysfs_is_not_the_one_that_sockets_see(tmp_path):
    first = procfs_of(tmp_path / "first", "pid:[4026531836]")
    assert not in_node_network(first, tmp_path, own_procfs=first)  # tmp_path is on no sysfs
    assert not in_node_network(first, tmp_path / "none", own_procfs=first)


def test_a_pods_own_sysfs_without_hardware_is_not_the_nodes(tmp_path):
    pod = procfs_of(tmp_path / "pod", "pid:[4026532280]")
    sysfs = tmp_path / "sys"
    (sysfs / "class" / "net" / "eth0").mkdir(parents=True)
    assert not in_node_network(pod, sysfs, own_procfs=pod, own_sysfs=sysfs)
    (sysfs / "class" / "net" / "eth0" / "device").mkdir()
    assert in_node_network(pod, sysfs, own_procfs=pod, own_sysfs=sysfs)
    (sysfs / "class" / "net" / "eth0" / "device" / "physfn").mkdir()
    assert not in_node_network(pod, sysfs, own_procfs=pod, own_sysfs=sysfs)


def test_a_network_that_process_1_does_not_share_is_not_the_nodes(tmp_path):
    first = procfs_of(tmp_path / "first", "pid:[4026531836]")
    (tmp_path / "sys").mkdir()
    for place in (first / "1" / "ns", first / "self" / "ns"):
        place.mkdir(exist_ok=True)
        write(place / "net", "")
    sysfs = tmp_path / "sys"
    assert not in_node_network(first, sysfs, own_procfs=first, own_sysfs=sysfs)
    (first / "self" / "ns" / "net").unlink()
    (first / "self" / "ns" / "net").hardlink_to(first / "1" / "ns" / "net")
    assert in_node_network(first, sysfs, own_procfs=first, own_sysfs=sysfs)
