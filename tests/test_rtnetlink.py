"""Netlink bytes: made by hand, recorded, and this kernel's own beside what a library sees."""

from __future__ import annotations

import socket
import struct

from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.marshal import MarshalRtnl

from rankscope_agent.sources.netdev.netlink import LinkMonitor
from rankscope_agent.sources.netdev.rtnetlink import link_states, messages, statistics

# Fields of struct rtnl_link_stats64 in their order, each with a value of its own.
STATISTICS = tuple(range(100, 125))
CRC, MISSED, CARRIER, COLLISIONS = 112, 115, 117, 109


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


def attribute(kind: int, body: bytes) -> bytes:
    padding = bytes(-len(body) % 4)
    return struct.pack("=HH", 4 + len(body), kind) + body + padding


def test_error_counters_are_decoded_from_netlink_bytes():
    body = struct.pack("=BBHII", 0, 0, 0, 7, 1) + attribute(1, struct.pack("=25Q", *STATISTICS))
    ((index, found), again) = statistics(message(92, body) + message(92, body))
    assert again == (7, found)
    assert index == 7
    assert found["rx_crc_errors"] == CRC
    assert found["rx_missed_errors"] == MISSED
    assert found["tx_carrier_errors"] == CARRIER
    assert found["collisions"] == COLLISIONS


# What the kernel (6.18) sent for the loopback of a new namespace, cut after its first attribute.
RECORDED = bytes.fromhex(
    "e80000005c000200010000003e87099300000000010000000100000" + "0cc000100" + "00" * 200
)


def test_recorded_statistics_of_the_kernel_are_decoded():
    ((index, found),) = statistics(RECORDED)
    assert index == 1
    assert set(found.values()) == {0}


def link(name: str, state: int, carrier: int) -> bytes:
    body = struct.pack("=BBHiII", 0, 0, 1, 7, 0x1003, 0)
    for kind, value in ((3, name.encode() + b"\0"), (16, bytes([state])), (33, bytes([carrier]))):
        body += attribute(kind, value)
    return message(16, body)


def test_link_events_are_decoded_and_others_left_out():
    data = link("eth0", 2, 0) + link("eth0", 6, 1) + message(17, link("eth0", 6, 1)[16:])
    states = list(link_states(data))
    assert [(s.name, s.carrier, s.state) for s in states] == [
        ("eth0", False, "DOWN"),
        ("eth0", True, "UP"),
    ]


def test_no_bytes_are_no_events():
    assert list(link_states(b"")) == []


def test_a_link_without_what_is_asked_for_has_no_state():
    body = struct.pack("=BBHiII", 0, 0, 1, 7, 0x1003, 0) + attribute(3, b"eth0\0")
    (state,) = link_states(message(16, body))
    assert (state.name, state.carrier, state.state) == ("eth0", None, "")
    assert list(link_states(message(16, body[:16]))) == []


def dump(request: int, body: bytes) -> bytes:
    """Return what this machine's kernel answers to a request for everything."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        asked.settimeout(5)
        asked.bind((0, 0))
        asked.send(struct.pack("=IHHII", 16 + len(body), request, 0x301, 1, 0) + body)
        data = b""
        while not any(message.type in {2, 3} for message in messages(data)):
            data += asked.recv(1 << 16)
    return data


def test_this_kernels_links_are_what_a_netlink_library_sees():
    data = dump(18, struct.pack("=BBHiII", 0, 0, 0, 0, 0, 0))
    expected = []
    for link in MarshalRtnl().parse(data):
        if link["event"] == "RTM_NEWLINK":
            seen = dict(link["attrs"])
            expected.append(
                (seen["IFLA_IFNAME"], bool(seen["IFLA_CARRIER"]), seen["IFLA_OPERSTATE"])
            )
    assert "lo" in {name for name, _, _ in expected}
    assert [(s.name, s.carrier, s.state) for s in link_states(data)] == expected


def test_this_kernels_counters_are_what_a_netlink_library_sees():
    data = dump(94, struct.pack("=BBHII", 0, 0, 0, 0, 1))
    expected = {
        one["ifindex"]: dict(one["attrs"])["IFLA_STATS_LINK_64"]
        for one in MarshalRtnl().parse(data)
        if one["event"] == "RTM_NEWSTATS"
    }
    found = dict(statistics(data))
    assert set(found) == set(expected)
    for index, counts in found.items():
        assert counts == {name: expected[index][name] for name in counts}


def test_the_kernel_answers_a_monitor_for_every_interface():
    monitor = LinkMonitor()
    try:
        assert set(monitor.details()) == {index for index, _ in socket.if_nameindex()}
    finally:
        monitor.close()


GOOD = link("eth0", 2, 0) + message(
    92, struct.pack("=BBHII", 0, 0, 0, 7, 1) + attribute(1, struct.pack("=25Q", *STATISTICS))
)


@given(st.integers(0, len(GOOD)), st.binary(max_size=6), st.integers(0, 6))
def test_damaged_bytes_give_no_message_that_is_not_within_them(place, damage, lost):
    data = GOOD[:place] + damage + GOOD[place + lost :]
    assert sum(16 + len(message.body) for message in messages(data)) <= len(data)
    assert len(list(link_states(data))) + len(list(statistics(data))) <= 2
