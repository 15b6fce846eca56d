"""What a node's summary says of its ports and interfaces."""

import pytest

from rankscope_agent.contract.metrics import (
    netdev,
    rdma,
)
from rankscope_agent.contract.metrics import summary as metrics
from summarized_nodes import AT, PORT, Node, of


def port_errors(symbol, other):
    return (
        rdma.PORT_ERRORS.sample(symbol, **PORT, type="symbol_error"),
        rdma.PORT_ERRORS.sample(symbol, **PORT, type="port_rcv_errors"),
        rdma.PORT_ERRORS.sample(other, **PORT, type="VL15_dropped"),
        rdma.HW_EVENTS.sample(symbol, **PORT, event="out_of_sequence"),
        rdma.HW_EVENTS.sample(other, **PORT, event="rx_write_requests"),
        rdma.LINK_FLAPS.sample(symbol, **PORT),
    )


def test_errors_of_a_port_are_added_up_over_the_types_that_mean_a_bad_link():
    node = Node()
    assert node.look(*port_errors(1000, 1000)) == {}
    found = node.look(*port_errors(1060, 9000))
    assert of(found, metrics.PORT_RECENT_ERRORS) == {AT: 120}
    assert of(found, metrics.PORT_RECENT_RETRANSMISSIONS) == {AT: 60}
    assert of(found, metrics.PORT_RECENT_FLAPS) == {AT: 60}
    found = node.look(*port_errors(1060, 9000), after=1000)
    assert of(found, metrics.PORT_RECENT_FLAPS) == {AT: 60}, "flaps count for half an hour"
    assert len(found) == 1
    assert node.look(*port_errors(1060, 9000), after=1000) == {}


@pytest.mark.parametrize(
    ("seconds", "kinds"),
    [
        (870, {metrics.PORT_RECENT_ERRORS, metrics.PORT_RECENT_RETRANSMISSIONS}),
        (930, set()),
    ],
)
def test_errors_of_a_port_count_for_a_quarter_of_an_hour(seconds, kinds):
    node = Node()
    node.look(*port_errors(0, 0))
    node.look(*port_errors(60, 0))
    told = {metric for metric, _ in node.look(*port_errors(60, 0), after=seconds)}
    assert told == kinds | {metrics.PORT_RECENT_FLAPS}


@pytest.mark.parametrize(("seconds", "told"), [(1770, True), (1830, False)])
def test_flaps_of_a_port_count_for_half_an_hour(seconds, told):
    node = Node()
    node.look(*port_errors(0, 0))
    node.look(*port_errors(1, 0))
    assert bool(node.look(*port_errors(1, 0), after=seconds)) is told


def bonded(first: int, second: int, netdev_of_port: str = "bond0"):
    """A port whose interface is a bond of two, of which the first is of the port's adapter."""
    losses = {"ens1f0": first, "ens1f1": second}
    info = {
        "firmware": "",
        "board_id": "",
        "hca_type": "",
        "node_guid": "",
        "numa_node": "",
        "function": "",
    }
    port = {"link_layer": "Ethernet", "width": "", "speed": "", "netdev": netdev_of_port}
    interface = {"kind": "physical", "numa_node": "", "mtu": ""}
    slaves = zip(losses, ("0000:3b:00.0", "0000:3b:00.1"), strict=True)
    return (
        rdma.LINK_FLAPS.sample(0, **PORT),
        rdma.DEVICE_INFO.sample(1, device=PORT["device"], pci="0000:3b:00.0", **info),
        rdma.PORT_INFO.sample(1, **PORT, **port),
        *(
            netdev.INFO.sample(1, device=name, pci=pci, bond="bond0", **interface)
            for name, pci in slaves
        ),
        netdev.INFO.sample(1, device="eth9", pci="0000:5b:00.0", bond="", **interface),
        *(
            netdev.CARRIER_CHANGES.sample(count, device=name, direction="down")
            for name, count in {**losses, "eth9": first + second}.items()
        ),
    )


@pytest.mark.parametrize(
    ("netdev_of_port", "flaps"), [("bond0", 3), ("", 2)], ids=["the bond's", "not shown"]
)
def test_slaves_of_a_bond_that_come_and_go_are_flaps_of_its_port(netdev_of_port, flaps):
    node = Node()
    node.look(*bonded(7, 7, netdev_of_port))
    found = node.look(*bonded(9, 10, netdev_of_port))
    assert of(found, metrics.PORT_RECENT_FLAPS) == {AT: flaps}


@pytest.mark.parametrize(
    ("type_", "errors"), [("rx_crc_errors_phy", 500), ("rx_discards_phy", 0), ("module_unplug", 0)]
)
def test_errors_that_an_interface_counts_are_its_ports(type_, errors):
    def counted(of_port: int, interface: str, of_interface: int):
        event = netdev.PHY_EVENTS.sample(of_interface, device=interface, type=type_)
        return (*port_errors(of_port, 0)[:1], event, *bonded(0, 0))

    for interface, more in (("bond0", errors), ("ens1f1", errors), ("eth9", 0)):
        node = Node()
        node.look(*counted(10, interface, 1000))
        found = node.look(*counted(17, interface, 1500))
        assert of(found, metrics.PORT_RECENT_ERRORS) == {AT: 7 + more}, interface


def test_recoveries_of_a_link_are_errors_of_it():
    node = Node()
    node.look(rdma.LINK_RECOVERIES.sample(3, **PORT))
    found = node.look(rdma.LINK_RECOVERIES.sample(5, **PORT))
    assert of(found, metrics.PORT_RECENT_ERRORS) == {AT: 2}


@pytest.mark.parametrize(("function", "told"), [("virtual", False), ("physical", True)])
def test_a_virtual_function_that_comes_and_goes_with_pods_is_no_flap(function, told):
    names = ("firmware", "board_id", "hca_type", "node_guid", "pci", "numa_node")
    info = rdma.DEVICE_INFO.sample(
        1, device=PORT["device"], function=function, **dict.fromkeys(names, "")
    )
    node = Node()
    node.look(info, rdma.LINK_FLAPS.sample(0, **PORT))
    found = node.look(info, rdma.LINK_FLAPS.sample(3, **PORT))
    assert bool(of(found, metrics.PORT_RECENT_FLAPS)) is told


def test_a_port_whose_counters_start_again_has_no_errors():
    node = Node()
    node.look(*port_errors(1_000_000, 0))
    assert node.look(*port_errors(0, 0)) == {}


def sent(share, look):
    return (
        rdma.TRANSMIT_BYTES.sample(share * 5e10 * 15 * look, **PORT),
        rdma.PORT_RATE.sample(5e10, **PORT),
    )


@pytest.mark.parametrize("share", [0.55, 0.97])
def test_ports_that_are_half_full_are_told(share):
    busy, idle = Node(), Node()
    for look in range(60):
        full, rest = busy.look(*sent(share, look)), idle.look(*sent(0.45, look))
        assert rest == {}
    assert of(full, metrics.PORT_BUSY) == {AT: pytest.approx(share, abs=0.02)}


def test_a_ports_traffic_is_that_of_the_last_five_minutes():
    node = Node()
    looks = [node.look(*sent(0.9, look)) for look in range(40)]
    told = [bool(found) for found in looks]
    assert told.index(True) == 12, "nine tenths of three minutes are half of five"
    ended = [bool(node.look(*sent(0.9, 39))) for _ in range(20)]
    assert ended.index(False) == 8


@pytest.mark.parametrize(("worst", "told"), [(0.2, True), (0.011, True), (0.009, False)])
def test_the_worst_paused_priority_of_an_interface_counts(worst, told):
    def paused(look):
        return [
            netdev.PFC_SECONDS.sample(
                15 * look * share, device="eth2", priority=priority, direction="receive"
            )
            for priority, share in (("3", worst), ("4", 0.001))
        ]

    node = Node()
    for look in range(60):
        found = node.look(*paused(look))
    near = pytest.approx(worst, rel=0.05)
    assert of(found, metrics.NIC_PAUSED) == ({("eth2",): near} if told else {})


def test_pause_storms_and_narrow_slots_are_told():
    def seen(storms):
        return (
            netdev.PAUSE_STORMS.sample(storms, device="eth2", level="error"),
            netdev.PCI_LINK_RATIO.sample(0.5, pci="0000:1d:00.0"),
            netdev.PCI_LINK_RATIO.sample(1.0, pci="0000:1e:00.0"),
        )

    node = Node()
    assert set(node.look(*seen(0))) == {(metrics.PCI_REDUCED, ("0000:1d:00.0",))}
    assert of(node.look(*seen(2)), metrics.NIC_RECENT_STORMS) == {("eth2",): 2}
