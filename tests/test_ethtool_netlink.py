"""Error correction, pause frames and link modes of ports, as ethtool's netlink gives them."""

from __future__ import annotations

import struct

import pytest
from pyroute2.netlink.generic.ethtool import ethtool_linkmode_msg

from netlink_messages import attribute, generic, nest, text
from rankscope_agent.sources.netdev.ethtool_netlink import (
    EthtoolNetlink,
    Fec,
    FecMessage,
    PauseMessage,
    fastest_of,
    fec_of,
    pauses_of,
)


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
