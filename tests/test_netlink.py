"""Links, their statistics and addresses by netlink: messages, and what this kernel answers."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading

from netlink_messages import attribute, message, rtnetlink, text
from rankscope_agent.sources.netdev.netlink import (
    LinkMonitor,
    LinkState,
    link_states,
    links_gone,
    statistics,
    usable_addresses,
)
from running_agent import agent_environment

# Fields of struct rtnl_link_stats64 in their order, each with a value of its own.
STATISTICS = tuple(range(100, 125))
CRC, MISSED, CARRIER, COLLISIONS = 112, 115, 117, 109


def test_detailed_errors_of_an_interface_are_taken_from_its_statistics():
    body = struct.pack("=BBHII", 0, 0, 0, 7, 1) + attribute(1, struct.pack("=25Q", *STATISTICS))
    ((index, found),) = statistics(rtnetlink(message(92, body)))
    assert index == 7
    assert found["rx_crc_errors"] == CRC
    assert found["rx_missed_errors"] == MISSED
    assert found["tx_carrier_errors"] == CARRIER
    assert found["collisions"] == COLLISIONS
    assert "rx_packets" not in found


def link(kind: int, name: str, state: int, carrier: int) -> bytes:
    body = struct.pack("=BBHiII", 0, 0, 1, 7, 0x1003, 0)
    for number, value in ((3, name.encode() + b"\0"), (16, bytes([state])), (33, bytes([carrier]))):
        body += attribute(number, value)
    return message(kind, body)


def test_link_events_say_name_carrier_and_state_and_links_that_go_are_left_out():
    data = link(16, "eth0", 2, 0) + link(16, "eth0", 6, 1) + link(17, "eth0", 2, 0)
    assert list(link_states(rtnetlink(data))) == [
        LinkState("eth0", False, "DOWN"),
        LinkState("eth0", True, "UP"),
    ]
    assert list(link_states(rtnetlink(b""))) == []


def test_events_of_a_bridge_about_its_ports_say_nothing_of_their_carriers():
    body = struct.pack("=BBHiII", socket.AF_BRIDGE, 0, 1, 7, 0x1003, 0) + text(3, "eth0")
    for kind in (16, 17):
        parsed = list(rtnetlink(message(kind, body + attribute(16, bytes([6])))))
        assert parsed
        assert list(link_states(parsed)) == list(links_gone(parsed)) == []


def test_links_that_go_are_named():
    data = link(16, "eth0", 2, 0) + link(17, "eth1", 2, 0)
    assert list(links_gone(rtnetlink(data))) == ["eth1"]


def test_a_link_event_without_what_is_asked_for_has_no_state():
    body = struct.pack("=BBHiII", 0, 0, 1, 7, 0x1003, 0) + text(3, "eth0")
    assert list(link_states(rtnetlink(message(16, body)))) == [LinkState("eth0", None, None)]


def address(family: int, scope: int, index: int, value: bytes) -> bytes:
    return message(20, struct.pack("=BBBBI", family, 24, 0, scope, index) + attribute(1, value))


def test_only_addresses_that_other_nodes_can_reach_count():
    data = (
        address(socket.AF_INET, 0, 4, bytes(4))
        + address(socket.AF_INET6, 0, 4, bytes(16))
        + address(socket.AF_INET6, 0, 4, bytes(16))
        + address(socket.AF_INET6, 253, 4, bytes(16))  # link-local
        + address(socket.AF_INET, 254, 1, bytes(4))  # of the host itself
    )
    assert usable_addresses(rtnetlink(data)) == {(4, "ipv4"): 1, (4, "ipv6"): 2}


def test_this_kernel_answers_for_every_interface_from_any_thread():
    answers: list[object] = []

    def ask() -> None:
        monitor = LinkMonitor()
        answers.extend((set(monitor.details()), monitor.addresses()))
        monitor.close()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    ask()
    assert answers[0] == answers[2] == {index for index, _ in socket.if_nameindex()}
    assert answers[1] == answers[3]


def test_an_agent_outside_of_the_nodes_network_loads_no_pyroute2(tmp_path):
    code = (
        "import sys; from pathlib import Path;"
        "from rankscope_agent.sources.netdev.collector import NetdevCollector;"
        "NetdevCollector(Path(sys.argv[1]), None, None, None, float, everything=False);"
        "sys.exit('pyroute2' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=agent_environment(), check=False
    )
    assert done.returncode == 0
