"""What the slaves of a bond count is about the RDMA device of the bond, and counted once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from faulty_series import NODES, SECONDS, TIMES, VIEW, Reading, observed
from rankscope_agent.contract.metrics import netdev, rdma
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.intake.observed import Observed, Series, gathered
from rankscope_analyzers.layers import link_faults
from rankscope_analyzers.layers.rdma_ports import of_ports, together

DEVICE = "mlx5_1"
SLAVES = ("ens1f0np0", "ens1f1np1")
BOND = "bond0"


def interface(name: str, bond: str = "", pci: str = "", node: str = NODES[1]) -> Reading:
    kind = "physical" if pci else "bond"
    return Reading(
        netdev.INFO, {"device": name, "kind": kind, "pci": pci, "bond": bond}, 1, 1, node
    )


def carrier(name: str, last: float, first: float = 7) -> Reading:
    return Reading(netdev.CARRIER_CHANGES, {"device": name, "direction": "down"}, last, first)


NETDEV = Reading(
    rdma.PORT_INFO, {"device": DEVICE, "port": "1", "link_layer": "Ethernet", "netdev": BOND}, 1
)
BONDED = (
    NETDEV,
    interface(BOND),
    interface(SLAVES[0], BOND, "0000:1b:00.0"),
    interface(SLAVES[1], BOND, "0000:1b:00.1"),
)


def findings(shown: Observed) -> list[Finding]:
    return list(link_faults.findings(shown, VIEW))


def found(*readings: Reading):
    return findings(observed(*BONDED, *readings))


@pytest.mark.parametrize("slave", SLAVES)
def test_a_slave_that_comes_and_goes_is_a_flap_of_the_bonds_rdma_device(slave):
    counts = [carrier(name, 10 if name == slave else 7) for name in SLAVES]
    (flap,) = found(carrier(BOND, 7), *counts)
    assert (flap.kind, flap.where.nodes, flap.where.devices) == ("flapping", (NODES[1],), (DEVICE,))
    assert "lost its link 3 times" in flap.summary
    assert flap.where.ranks == (5,)


def test_links_of_a_bond_that_are_lost_together_are_one_loss():
    (flap,) = found(carrier(BOND, 8), carrier(SLAVES[0], 8), carrier(SLAVES[1], 8))
    assert "lost its link once" in flap.summary


def test_a_bond_whose_slaves_are_not_shown_has_its_own_count():
    shown = observed(NETDEV, interface(BOND), carrier(BOND, 9))
    (flap,) = findings(shown)
    assert flap.where.devices == (DEVICE,)
    assert "lost its link 2 times" in flap.summary


def test_interfaces_of_no_bond_and_of_bonds_without_rdma_are_nobodys():
    other = (interface("eth0", pci="0000:5b:00.0"), interface("eth1", "bond1", "0000:5b:00.1"))
    assert found(*other, carrier("eth0", 99), carrier("eth1", 99)) == []


def test_a_slave_with_an_rdma_device_of_its_own_counts_for_that():
    adapters = [
        Reading(
            rdma.DEVICE_INFO,
            {"device": f"mlx5_{n}", "board_id": "MT_1", "pci": f"0000:1b:00.{n}"},
            1,
        )
        for n in (0, 1)
    ]
    shown = [replace(NETDEV, labels={**NETDEV.labels, "device": f"mlx5_{n}"}) for n in (0, 1)]
    (flap,) = found(*adapters, *shown, carrier(SLAVES[0], 9), carrier(SLAVES[1], 7))
    assert flap.where.devices == ("mlx5_0",)


def test_pauses_of_both_slaves_are_the_devices():
    def paused(name: str, share: float) -> Reading:
        labels = {"device": name, "priority": "3", "direction": "receive"}
        return Reading(netdev.PFC_SECONDS, labels, share * SECONDS, 0)

    parts = [
        series
        for series, port in of_ports(
            observed(*BONDED, *(paused(name, 0.2) for name in SLAVES)), (netdev.PFC_SECONDS,)
        )
        if port[1] == DEVICE
    ]
    (series,) = parts
    assert series.last == pytest.approx(0.4 * SECONDS)


def test_an_interface_counts_for_the_port_that_names_it():
    ports = [
        Reading(rdma.PORT_INFO, {"device": "mlx4_0", "port": port, "netdev": f"eth{port}"}, 1)
        for port in ("1", "2")
    ]
    shown = gathered(one.series() for one in (*ports, carrier("eth1", 1), carrier("eth2", 2)))
    by_port = {port[2]: series.last for series, port in of_ports(shown, (netdev.CARRIER_CHANGES,))}
    assert by_port == {"1": 1, "2": 2}


def counted(metric: Metric, values, times) -> Series:
    return Series(NODES[1], metric.name, {}, np.array(times), np.array(values))


@pytest.mark.parametrize(
    ("metric", "grown"),
    [(netdev.CARRIER_CHANGES, [0, 0, 0, 3]), (netdev.PFC_SECONDS, [0, 0, 0, 4])],
)
def test_a_slave_whose_driver_is_loaded_again_resets_nothing_of_the_other(metric, grown):
    steady = counted(metric, [40.0, 40.0, 40.0, 43.0], TIMES[:4])
    reloaded = counted(metric, [30.0, 0.0, 1.0], TIMES[[0, 2, 3]])
    both = together([steady, reloaded])
    assert both.times.tolist() == TIMES[:4].tolist()
    assert both.values.tolist() == grown


def test_a_device_that_its_agent_lost_is_found_by_its_own_name():
    shown = observed(Reading(rdma.DEVICE_LOST, {"device": DEVICE, "pci": "0000:1b:00.0"}, 1))
    without_state = gathered(
        series
        for series in shown.all()
        if not (series.node == NODES[1] and series.name == rdma.PORT_STATE.name)
        or series.labels["device"] != DEVICE
    )
    (found_,) = findings(without_state)
    assert (found_.kind, found_.where.devices, found_.where.ranks) == ("link_down", (DEVICE,), (5,))
    assert rdma.DEVICE_LOST.name in found_.source


@pytest.mark.parametrize(("function", "kinds"), [("virtual", set()), ("physical", {"link_down"})])
def test_a_virtual_function_that_a_pod_leaves_is_no_link_that_is_down(function, kinds):
    port = {"device": "mlx5_9", "port": "1"}
    state = Reading(rdma.PORT_STATE, port, 1).series()
    values = np.where(np.arange(len(TIMES)) < 4, 4.0, 1.0)
    info = Reading(rdma.DEVICE_INFO, {"device": "mlx5_9", "function": function}, 1)
    shown = gathered([*observed(info).all(), replace(state, values=values)])
    assert {one.kind for one in findings(shown)} == kinds
