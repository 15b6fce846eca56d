"""Netlink: messages made by the numbers of the kernel's headers, and what this kernel answers."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter

import pytest
from pyroute2.netlink.devlink import devlinkcmd
from pyroute2.netlink.generic.ethtool import ethtool_linkmode_msg
from pyroute2.netlink.rtnl.marshal import MarshalRtnl

from rankscope_agent.contract.metrics import netdev as metrics
from rankscope_agent.sources.netdev.devlink import (
    Adapter,
    Devlink,
    Reporter,
    adapters_of,
    reporters_of,
)
from rankscope_agent.sources.netdev.ethtool_netlink import (
    EthtoolNetlink,
    Fec,
    FecMessage,
    PauseMessage,
    fastest_of,
    fec_of,
    pauses_of,
)
from rankscope_agent.sources.netdev.host_links import HostLinks
from rankscope_agent.sources.netdev.interfaces import Interface
from rankscope_agent.sources.netdev.netlink import (
    LinkMonitor,
    LinkState,
    link_states,
    links_gone,
    statistics,
    usable_addresses,
)
from running_agent import agent_environment

NESTED = 0x8000  # NLA_F_NESTED

# Fields of struct rtnl_link_stats64 in their order, each with a value of its own.
STATISTICS = tuple(range(100, 125))
CRC, MISSED, CARRIER, COLLISIONS = 112, 115, 117, 109


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


def attribute(kind: int, body: bytes) -> bytes:
    padding = bytes(-len(body) % 4)
    return struct.pack("=HH", 4 + len(body), kind) + body + padding


def nest(kind: int, *parts: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(parts))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def generic(of: type, command: int, *attributes: bytes):
    """Return a decoded message of generic netlink: struct genlmsghdr, then attributes."""
    decoded = of(message(20, struct.pack("=BBH", command, 1, 0) + b"".join(attributes)))
    decoded.decode()
    return decoded


def rtnetlink(data: bytes):
    return MarshalRtnl().parse(data)


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


def test_the_first_of_the_counts_of_error_correction_is_the_ports():
    lanes = struct.pack("=3Q", 700, 300, 400)
    counted = nest(5, attribute(2, lanes), attribute(3, struct.pack("=Q", 2)))
    assert fec_of(generic(FecMessage, 29, counted)) == Fec(700, 2)


@pytest.mark.parametrize("parts", [(), (nest(5),), (nest(5, attribute(2, b"")),)])
def test_a_driver_that_counts_no_blocks_gives_none_not_zero(parts):
    assert fec_of(generic(FecMessage, 29, *parts)) == Fec(None, None)


def test_pause_frames_have_a_direction():
    counted = nest(5, attribute(2, struct.pack("=Q", 11)), attribute(3, struct.pack("=Q", 22)))
    said = generic(PauseMessage, 21, attribute(2, b"\1"), attribute(3, b"\1"), counted)
    assert pauses_of(said) == {"transmit": 11, "receive": 22}
    assert pauses_of(generic(PauseMessage, 21)) == {}


def mode(number: int, name: str, *, advertised: bool) -> bytes:
    value = (attribute(3, b""),) if advertised else ()
    return nest(1, attribute(1, struct.pack("=I", number)), text(2, name), *value)


def test_the_fastest_mode_is_one_that_the_port_offers():
    bits = nest(
        3,
        mode(5, "1000baseT/Full", advertised=True),
        mode(36, "100000baseCR4/Full", advertised=True),
        mode(64, "200000baseCR4/Full", advertised=False),
        mode(13, "Pause", advertised=True),
    )
    said = generic(ethtool_linkmode_msg, 4, nest(3, attribute(2, struct.pack("=I", 121)), bits))
    assert fastest_of(said) == 100e9 / 8
    assert fastest_of(generic(ethtool_linkmode_msg, 4)) is None


def board(*more: bytes, bus: str = "pci", command: int = 51):
    return generic(devlinkcmd, command, text(1, bus), text(2, "0000:3b:00.0"), *more)


def test_an_adapter_says_its_driver_and_the_firmware_that_runs():
    running = nest(101, text(103, "fw.version"), text(104, "28.39.1002"))
    stored = nest(102, text(103, "fw.version"), text(104, "28.40.1000"))
    said = board(text(98, "mlx5_core"), running, stored)
    assert list(adapters_of([said])) == [Adapter("0000:3b:00.0", "mlx5_core", "28.39.1002")]
    assert list(adapters_of([board(bus="auxiliary")])) == []
    assert list(adapters_of([board()])) == [Adapter("0000:3b:00.0", "", "")]


def reporter(name: str, state: int, errors: int):
    count = attribute(117, struct.pack("=Q", errors))
    return board(nest(114, text(115, name), attribute(116, bytes([state])), count))


def test_health_reporters_say_whether_they_are_in_error_and_how_often_they_were():
    assert list(reporters_of([reporter("fw_fatal", 1, 3), board()])) == [
        Reporter("0000:3b:00.0", "fw_fatal", False, 3)
    ]


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


def test_what_this_kernel_refuses_is_an_os_error():
    asked = EthtoolNetlink()
    for ask in (asked.fec, asked.pause_frames, asked.fastest_mode):
        with pytest.raises(OSError, match=r"supported|such file|denied|permitted"):
            ask("lo")
    asked.close()


@pytest.mark.parametrize(("method", "command"), [("pause_frames", 21), ("fec", 29)])
def test_the_kernel_is_asked_for_one_port_and_for_its_counters(method, command, monkeypatch):
    sent = []

    async def bound(self, family, message):
        pass

    async def answers(message):
        yield message

    async def request(self, message):
        sent.append(message)
        return answers(message)

    asked = EthtoolNetlink()
    monkeypatch.setattr(EthtoolNetlink.async_class, "bind", bound)
    monkeypatch.setattr(EthtoolNetlink.async_class, "_do_request", request)
    getattr(asked, method)("eth7")
    asked.close()
    ((name, header),) = sent[0]["attrs"]
    assert name.endswith("_HEADER")
    assert (sent[0]["cmd"], sent[0]["version"]) == (command, 1)  # ETHTOOL_MSG_..._GET
    assert ["ETHTOOL_A_HEADER_DEV_NAME", "eth7"] in [list(one) for one in header["attrs"]]
    assert ["ETHTOOL_A_HEADER_FLAGS", 4] in [list(one) for one in header["attrs"]]  # FLAG_STATS


def test_a_kernel_without_adapters_has_none_or_refuses():
    asked = Devlink()
    with contextlib.suppress(OSError):
        assert all(adapter.pci == pci for pci in asked.devices() for adapter in asked.adapters(pci))
    asked.close()


def test_the_kernel_is_asked_for_the_firmware_of_one_adapter(monkeypatch):
    sent = []

    async def bound(self):
        pass

    async def request(self, message, msg_type, msg_flags):
        sent.append((message, msg_flags))
        return answers()

    async def answers():
        yield board(text(98, "mlx5_core"))

    asked = Devlink()
    monkeypatch.setattr(Devlink.async_class, "bind", bound)
    monkeypatch.setattr(Devlink.async_class, "prid", 20)
    monkeypatch.setattr(Devlink.async_class, "nlm_request", request)
    assert list(asked.devices()) == ["0000:3b:00.0"]
    assert [adapter.driver for adapter in asked.adapters("0000:3b:00.0")] == ["mlx5_core"]
    asked.close()
    (listed, all_of_them), (of_one, one) = sent
    assert (listed["cmd"], listed["attrs"], all_of_them) == (1, [], 0x301)  # ..._GET, NLM_F_DUMP
    assert (of_one["cmd"], one) == (51, 1)  # DEVLINK_CMD_INFO_GET, NLM_F_REQUEST
    of_one.encode()
    assert text(1, "pci") + text(2, "0000:3b:00.0") in bytes(of_one.data)


class Refusing:
    """Refuses everything, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def refuse(self, *_: object):
        self.asked += 1
        raise OSError("refused")

    fec = pause_frames = fastest_mode = devices = reporters = addresses = refuse

    def close(self) -> None:
        pass


ETH0 = Interface("eth0", None, "physical", "0000:3b:00.0", rdma=False)  # type: ignore[arg-type]


def test_what_is_refused_is_not_asked_again_and_costs_nothing_else():
    ports, boards, links = Refusing(), Refusing(), Refusing()
    host = HostLinks(links, ports, boards)
    for _ in range(3):
        assert list(host.samples([ETH0], {"eth0": 4})) == []
    assert (ports.asked, boards.asked) == (3, 2)


class Answering:
    def addresses(self):
        return {(4, "ipv4"): 2}

    def fec(self, interface: str) -> Fec:
        return Fec(700, None)

    def pause_frames(self, interface: str):
        return {"receive": 22}

    def fastest_mode(self, interface: str) -> float:
        return 12.5e9

    def devices(self):
        return ["0000:3b:00.0"]

    def adapters(self, pci: str):
        return [Adapter(pci, "mlx5_core", "28.39\n1002")]

    def reporters(self):
        return [
            Reporter("0000:3b:00.0", "tx", True, 4),
            Reporter("0000:3b:00.0", "fw_fatal", False, 3),
        ]


def test_answers_become_series_of_interfaces_and_adapters():
    of = Answering()
    found = {
        (s.metric, s.labels): s.value for s in HostLinks(of, of, of).samples([ETH0], {"eth0": 4})
    }
    assert found == {
        (metrics.ADDRESSES, ("eth0", "ipv4")): 2,
        (metrics.ADDRESSES, ("eth0", "ipv6")): 0,
        (metrics.FASTEST_MODE, ("eth0",)): 12.5e9,
        (metrics.FEC_BLOCKS, ("eth0", "corrected")): 700,
        (metrics.LINK_PAUSE_FRAMES, ("eth0", "receive")): 22,
        (metrics.ADAPTER_INFO, ("0000:3b:00.0", "mlx5_core", "28.391002")): 1,
        (metrics.ADAPTER_UNHEALTHY, ("0000:3b:00.0", "fw_fatal")): 1,
        (metrics.ADAPTER_HEALTH_ERRORS, ("0000:3b:00.0",)): 7,
    }


class Resetting(Answering):
    """An adapter whose driver detaches its interface at first, and has no error correction."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def fastest_mode(self, interface: str) -> float:
        self.asked["mode"] += 1
        if self.asked["mode"] == 1:
            raise OSError(errno.ENODEV, "No such device")
        return super().fastest_mode(interface)

    def fec(self, interface: str) -> Fec:
        self.asked["fec"] += 1
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")


def test_an_adapter_that_is_reset_while_it_is_asked_is_asked_again():
    of = Resetting()
    host = HostLinks(of, of, of)
    looks = [{s.metric for s in host.samples([ETH0], {"eth0": 4})} for _ in range(3)]
    assert [metrics.FASTEST_MODE in shown for shown in looks] == [False, True, True]
    assert of.asked == {"mode": 3, "fec": 1}


class OneFails(Answering):
    """Three adapters; the driver of the second fails to read its firmware."""

    def __init__(self, number: int = errno.EIO) -> None:
        self.number = number
        self.asked: Counter[str] = Counter()

    def devices(self):
        return ["0000:3b:00.0", "0000:5b:00.0", "0000:9b:00.0"]

    def adapters(self, pci: str):
        self.asked[pci] += 1
        if pci == "0000:5b:00.0":
            raise OSError(self.number, os.strerror(self.number))
        return super().adapters(pci)


def test_an_adapter_that_does_not_tell_its_firmware_costs_no_other_adapters(caplog):
    of = OneFails()
    host = HostLinks(of, of, of)
    for _ in range(3):
        found = list(host.samples([ETH0], {"eth0": 4}))
        told = [s.labels[0] for s in found if s.metric is metrics.ADAPTER_INFO]
        assert told == ["0000:3b:00.0", "0000:9b:00.0"]
    assert of.asked == {"0000:3b:00.0": 3, "0000:5b:00.0": 1, "0000:9b:00.0": 3}
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    (once,) = said
    assert once.startswith("no firmware of 0000:5b:00.0 by netlink:")


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOENT])
def test_drivers_that_tell_no_firmware_are_not_worth_a_warning(number, caplog):
    of = OneFails(number)
    assert [s for s in HostLinks(of, of, of).samples([], {}) if s.metric is metrics.ADAPTER_INFO]
    assert caplog.records == []


def test_reporters_of_one_name_are_one_series_of_their_adapter():
    of = Answering()
    of.reporters = lambda: [Reporter("0000:3b:00.0", "tx", False, count) for count in (1, 2)]
    found = list(HostLinks(of, of, of).samples([ETH0], {"eth0": 4}))
    unhealthy = [s.labels for s in found if s.metric is metrics.ADAPTER_UNHEALTHY]
    assert unhealthy == [("0000:3b:00.0", "tx")]
    assert [s.value for s in found if s.metric is metrics.ADAPTER_HEALTH_ERRORS] == [3]


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
