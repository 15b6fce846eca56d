"""What netlink's answers become of interfaces and adapters, and what is refused costs."""

from __future__ import annotations

import errno
import os
from collections import Counter

import pytest

from rankscope_agent.contract.metrics import netdev as metrics
from rankscope_agent.sources.netdev.devlink import Adapter, Reporter
from rankscope_agent.sources.netdev.ethtool_netlink import Fec
from rankscope_agent.sources.netdev.host_links import HostLinks
from rankscope_agent.sources.netdev.interfaces import Interface


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
