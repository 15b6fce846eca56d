"""Kernel tables, driver statistics and PCI texts, and odd ones left out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_agent.contract.metrics import netdev as metrics
from rankscope_agent.sources.netdev.drivers import driver_statistics
from rankscope_agent.sources.netdev.ethtool_names import labelled
from rankscope_agent.sources.netdev.tables import (
    Traffic,
    parse_net_dev,
    parse_paired_table,
    parse_speed,
)
from rankscope_agent.sources.pci.link import PciLink, parse_errors, parse_width
from rankscope_agent.sources.pci.link import parse_speed as parse_pci_speed

NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
  eth0: 100 1 2 3 0 0 0 0 400 4 5 6 0 0 0 0
eth1:18446744073709551616 1 2 3 0 0 0 0 400 4 5 6 0 0 0 0
  bad: 1 2 three
a:b: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0
"""


def test_each_line_of_net_dev_is_an_interface_and_bad_lines_cost_themselves():
    table = parse_net_dev(NET_DEV)
    assert table == {"eth0": Traffic(100, 400, 2, 5, 3, 6), "a:b": Traffic(1, 2, 0, 0, 0, 0)}


def test_tables_in_pairs_of_lines_are_read_by_protocol():
    text = "Tcp: A B C\nTcp: 1 -1 3\nIp: X\nUdp: 5\nUdp: Y\nUdp: 7\n"
    assert parse_paired_table(text) == {"Tcp": {"A": 1, "C": 3}, "Udp": {"Y": 7}}
    assert parse_paired_table("") == {}


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("1000", 125e6),
        ("400000", 50e9),
        ("-1", None),
        ("4294967295", None),
        ("0", None),
        ("", None),
    ],
)
def test_a_speed_is_in_bytes_per_second_and_unknown_while_down(text, speed):
    assert parse_speed(text) == speed


def by_series(statistics):
    return {(s.metric, s.labels): s.value for s in labelled("eth0", statistics)}


def test_priorities_and_directions_become_labels_in_base_units():
    series = by_series(
        {
            "rx_prio3_pause": 7,
            "tx_prio3_pause": 8,
            "rx_prio3_pause_duration": 2_500_000,
            "rx_prio3_discards": 4,
            "tx_pause_ctrl_phy": 9,
            "tx_pause_storm_warning_events": 0,
            "tx_pause_storm_error_events": 1,
            "link_down_events_phy": 0,
            "bw_in_allowance_exceeded": 0,
        }
    )
    assert series == {
        (metrics.PFC_FRAMES, ("eth0", "3", "receive")): 7,
        (metrics.PFC_FRAMES, ("eth0", "3", "transmit")): 8,
        (metrics.PFC_SECONDS, ("eth0", "3", "receive")): 2.5,
        (metrics.PFC_DISCARDS, ("eth0", "3")): 4,
        (metrics.PAUSE_FRAMES, ("eth0", "transmit")): 9,
        (metrics.PAUSE_STORMS, ("eth0", "warning")): 0,
        (metrics.PAUSE_STORMS, ("eth0", "error")): 1,
        (metrics.PHY_EVENTS, ("eth0", "link_down_events_phy")): 0,
        (metrics.LIMITED, ("eth0", "bw_in")): 0,
    }


@pytest.mark.parametrize(
    "name",
    ["rx_pfc_ena_frames_pri3", "rx_priority_3_xoff.nic", "port.rx_priority_3_xoff"],
)
def test_pause_frames_of_other_drivers_are_the_same_series(name):
    assert by_series({name: 7}) == {(metrics.PFC_FRAMES, ("eth0", "3", "receive")): 7}


def test_names_that_are_not_on_the_list_are_left_out_however_many():
    names = {f"rx{queue}_packets": 1 for queue in range(5000)}
    odd = {"rx_prio9_pause": 1, "rx_prio3_pause_x": 1, "duplicate metric": 1, "": 1}
    assert by_series(names | odd) == {}


@pytest.mark.parametrize("values", [(7, 8), (8, 0), (0, 8)])
def test_two_names_of_one_meaning_are_one_series_that_never_falls(values):
    both = dict(zip(("rx_prio3_discards", "rx_prio3_buf_discard"), values, strict=True))
    assert by_series(both) == {(metrics.PFC_DISCARDS, ("eth0", "3")): 8}


class Drivers:
    """Drivers of some interfaces, of which others have none."""

    def __init__(self, **statistics):
        self.read = statistics

    def statistics(self, interface):
        if interface not in self.read:
            raise OSError(95, "Operation not supported")
        return self.read[interface]


def test_pauses_that_one_port_has_counted_are_shown_of_all():
    """A port whose peers have none can be compared only with what they show."""
    names = ("rx_prio3_pause", "rx_prio3_pause_duration", "rx_global_pause_duration", "tx_x")
    drivers = Drivers(
        eth0=dict.fromkeys(names, 0), eth1=dict(zip(names, (7, 10**6, 2 * 10**6, 1), strict=True))
    )
    interfaces = [SimpleNamespace(name=f"eth{n}", kind="physical") for n in range(3)]
    found = {(one.metric, one.labels): one.value for one in driver_statistics(drivers, interfaces)}
    assert found == {
        (metric, (device, priority, "receive")): value * (device == "eth1")
        for device in ("eth0", "eth1")
        for metric, priority, value in (
            (metrics.PFC_FRAMES, "3", 7),
            (metrics.PFC_SECONDS, "3", 1.0),
            (metrics.PFC_SECONDS, "global", 2.0),
        )
    }
    quiet = Drivers(eth0=dict.fromkeys(names, 0))
    assert list(driver_statistics(quiet, interfaces)) == []


@pytest.mark.parametrize(
    ("text", "speed"),
    [("32.0 GT/s PCIe", 32e9), ("8 GT/s", 8e9), ("2.5 GT/s", 2.5e9), ("Unknown", None), ("", None)],
)
def test_pci_speeds(text, speed):
    assert parse_pci_speed(text) == speed


@pytest.mark.parametrize(
    ("text", "width"), [("16", 16), ("63", None), ("0", None), ("", None), ("x", None)]
)
def test_pci_widths_and_that_of_a_device_that_is_gone(text, width):
    assert parse_width(text) == width


def test_a_link_of_half_the_lanes_and_half_the_speed_is_a_quarter():
    assert PciLink(8, 16, 16e9, 32e9).ratio == 0.25


def test_pci_errors_are_read_by_type_and_totals_left_out():
    text = "RxErr 1\nBadTLP 0\nTOTAL_ERR_COR 1\nodd\nNeg -1\n"
    assert parse_errors(text) == {"RxErr": 1, "BadTLP": 0}


def test_pauses_of_drivers_are_microseconds_and_frames_are_counted():
    statistics = {"rx_prio3_pause": 7, "rx_prio3_pause_duration": 5_000_000}
    found = {one.metric: one.value for one in labelled("eth0", statistics)}
    assert found == {metrics.PFC_FRAMES: 7, metrics.PFC_SECONDS: 5.0}
