"""Link modes, error correction and pause frames through the generic netlink family "ethtool".

pyroute2 provides the socket and link modes; the two messages that it lacks are declared here with
the numbers in the kernel's include/uapi/linux/ethtool_netlink.h. Imported only in the node's
network.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink import NLA_F_NESTED, genlmsg, nla
from pyroute2.netlink.generic.ethtool import (
    ETHTOOL_GENL_NAME,
    ETHTOOL_GENL_VERSION,
    AsyncNlEthtool,
    NlEthtool,
    ethtoolbitset,
    ethtoolheader,
)

from rankscope_agent.sources.netdev.netlink import refused_as_os_error

PAUSE_GET, FEC_GET = 21, 29  # ETHTOOL_MSG_PAUSE_GET, ETHTOOL_MSG_FEC_GET
WITH_STATISTICS = 4  # ETHTOOL_FLAG_STATS

BYTES_PER_MEGABIT = 1e6 / 8
SPEED_UNKNOWN = 2**32 - 1  # SPEED_UNKNOWN is -1 in include/uapi/linux/ethtool.h, in a u32

_SPEED = re.compile(r"(\d+)base")


class PauseMessage(genlmsg):
    """Pause frames of the whole link: what is switched on, and how many were sent and received."""

    nla_map = (
        ("ETHTOOL_A_PAUSE_UNSPEC", "none"),
        ("ETHTOOL_A_PAUSE_HEADER", "ethtoolheader"),
        ("ETHTOOL_A_PAUSE_AUTONEG", "uint8"),
        ("ETHTOOL_A_PAUSE_RX", "uint8"),
        ("ETHTOOL_A_PAUSE_TX", "uint8"),
        ("ETHTOOL_A_PAUSE_STATS", "statistics"),
    )
    ethtoolheader = ethtoolheader

    class statistics(nla):  # noqa: N801 - the name that nla_map gives it
        """The numbers of frames."""

        nla_flags = NLA_F_NESTED
        nla_map = (
            ("ETHTOOL_A_PAUSE_STAT_UNSPEC", "none"),
            ("ETHTOOL_A_PAUSE_STAT_PAD", "none"),
            ("ETHTOOL_A_PAUSE_STAT_TX_FRAMES", "uint64"),
            ("ETHTOOL_A_PAUSE_STAT_RX_FRAMES", "uint64"),
        )


class FecMessage(genlmsg):
    """Forward error correction: the mode in use, and numbers of (un)corrected blocks."""

    nla_map = (
        ("ETHTOOL_A_FEC_UNSPEC", "none"),
        ("ETHTOOL_A_FEC_HEADER", "ethtoolheader"),
        ("ETHTOOL_A_FEC_MODES", "ethtoolbitset"),
        ("ETHTOOL_A_FEC_AUTO", "uint8"),
        ("ETHTOOL_A_FEC_ACTIVE", "uint32"),
        ("ETHTOOL_A_FEC_STATS", "statistics"),
    )
    ethtoolheader = ethtoolheader
    ethtoolbitset = ethtoolbitset

    class statistics(nla):  # noqa: N801 - the name that nla_map gives it
        """Arrays of u64: the port's total first, then the counts of each lane."""

        nla_flags = NLA_F_NESTED
        nla_map = (
            ("ETHTOOL_A_FEC_STAT_UNSPEC", "none"),
            ("ETHTOOL_A_FEC_STAT_PAD", "none"),
            ("ETHTOOL_A_FEC_STAT_CORRECTED", "cdata"),
            ("ETHTOOL_A_FEC_STAT_UNCORR", "cdata"),
            ("ETHTOOL_A_FEC_STAT_CORR_BITS", "cdata"),
        )


@dataclass(frozen=True, slots=True)
class Fec:
    """Blocks of one port; None if its driver does not count them."""

    corrected: int | None
    uncorrectable: int | None


class _AsyncEthtool(AsyncNlEthtool):
    module_err_level = "debug"  # a kernel without the family is not an error

    async def ask(self, message: Any, command: int, header: str, ifname: str) -> Any:
        message["cmd"], message["version"] = command, ETHTOOL_GENL_VERSION
        of = self._get_dev_header(ifname)
        of["attrs"].append(["ETHTOOL_A_HEADER_FLAGS", WITH_STATISTICS])
        message["attrs"].append((header, of))
        await self.bind(ETHTOOL_GENL_NAME, type(message))
        return await self._do_request(message)


class EthtoolNetlink(NlEthtool):
    """Queries one interface at a time.

    Every method raises OSError if the kernel lacks the family or the driver the answer.
    """

    async_class = _AsyncEthtool

    def fec(self, interface: str) -> Fec:
        """Return the numbers of corrected and uncorrected blocks."""
        return fec_of(self._first(FecMessage(), FEC_GET, "ETHTOOL_A_FEC_HEADER", interface))

    def pause_frames(self, interface: str) -> Mapping[str, int]:
        """Return pause frames by direction, `receive` and `transmit`, as far as counted."""
        message = self._first(PauseMessage(), PAUSE_GET, "ETHTOOL_A_PAUSE_HEADER", interface)
        return pauses_of(message)

    def fastest_mode(self, interface: str) -> float | None:
        """Return the bytes per second of the fastest mode on offer; None if none is named."""
        with refused_as_os_error():
            return fastest_of(self.get_linkmode(interface)[0])

    def speed(self, interface: str) -> float | None:
        """Return the negotiated bytes per second; None while unknown."""
        with refused_as_os_error():
            return speed_of(self.get_linkmode(interface)[0])

    def _first(self, message: Any, command: int, header: str, interface: str) -> Any:
        with refused_as_os_error():
            asked = self.asyncore.ask
            return self._run_sync_cleanup(asked, message, command, header, interface)[0]


def fec_of(message: Any) -> Fec:
    """Return the totals of a FEC message."""
    counted = message.get("ETHTOOL_A_FEC_STATS")
    if counted is None:
        return Fec(None, None)
    return Fec(
        _total(counted.get("ETHTOOL_A_FEC_STAT_CORRECTED")),
        _total(counted.get("ETHTOOL_A_FEC_STAT_UNCORR")),
    )


def _total(array: bytes | None) -> int | None:
    """Return the first of an array of u64, which is the port's total."""
    return struct.unpack_from("=Q", array)[0] if array and len(array) >= 8 else None


def pauses_of(message: Any) -> Mapping[str, int]:
    """Return the frames of a pause message by direction."""
    counted = message.get("ETHTOOL_A_PAUSE_STATS")
    if counted is None:
        return {}
    found = {
        "receive": counted.get("ETHTOOL_A_PAUSE_STAT_RX_FRAMES"),
        "transmit": counted.get("ETHTOOL_A_PAUSE_STAT_TX_FRAMES"),
    }
    return {direction: int(count) for direction, count in found.items() if count is not None}


def fastest_of(message: Any) -> float | None:
    """Return the bytes per second of the fastest advertised mode, such as "100000baseCR4/Full"."""
    modes = message.get("ETHTOOL_A_LINKMODES_OURS")
    bits = modes.get("ETHTOOL_A_BITSET_BITS") if modes is not None else None
    speeds = [
        int(speed.group(1)) * BYTES_PER_MEGABIT
        for _, bit in (bits["attrs"] if bits is not None else ())
        if bit.get("ETHTOOL_A_BITSET_BIT_VALUE")
        and (speed := _SPEED.match(bit.get("ETHTOOL_A_BITSET_BIT_NAME") or ""))
    ]
    return max(speeds, default=None)


def speed_of(message: Any) -> float | None:
    """Return the negotiated bytes per second; the kernel writes an unknown speed as -1."""
    megabits = message.get("ETHTOOL_A_LINKMODES_SPEED")
    known = megabits is not None and 0 < megabits < SPEED_UNKNOWN
    return megabits * BYTES_PER_MEGABIT if known else None
