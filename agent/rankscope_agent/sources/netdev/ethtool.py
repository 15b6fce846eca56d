"""Driver statistics through the SIOCETHTOOL ioctl, which requires no privilege.

Layouts and numbers: the kernel's include/uapi/linux/ethtool.h and sockios.h.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Mapping, Sequence

SIOCETHTOOL = 0x8946
GET_STRINGS, GET_STATISTICS, GET_SET_SIZES = 0x1B, 0x1D, 0x37
STATISTICS_SET = 1  # ETH_SS_STATS
NAME_BYTES = 32  # ETH_GSTRING_LEN
INTERFACE_NAME_BYTES = 16  # IFNAMSIZ, including the terminating NUL

MAX_STATISTICS = 16_384
"""Statistics read per interface: mlx5 with 256 queues has some 10,000."""

SLACK = 2
"""How much more space than requested is provided: the kernel writes as many values as the driver
has by then, which may differ while its queues are being reconfigured."""

MIN_CAPACITY = 256

_IFREQ = struct.Struct("16sP16x")
_SET_SIZES = struct.Struct("=IIQI")
_HEADER = struct.Struct("=II")


class Ethtool:
    """Queries drivers in the network of this process; names are requested once per size."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._names: dict[str, Sequence[str]] = {}

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def statistics(self, interface: str) -> Mapping[str, int]:
        """Return a driver's statistics by name in its order; of equal names the first counts.

        There are none while their number changes, as when queues are reconfigured: nobody knows
        which value then has which name.

        Raises:
            OSError: the interface does not exist, or its driver has none (EOPNOTSUPP).
        """
        count = self._count(interface)
        if not 0 < count <= MAX_STATISTICS:
            return {}
        names = self._names.get(interface)
        if names is None or len(names) != count:
            names = self._names[interface] = self._read_names(interface, count)
        values = self._read_values(interface, count)
        if len(names) != len(values):
            return {}
        last_first = dict(zip(reversed(names), reversed(values), strict=True))
        return dict(reversed(last_first.items()))

    def _count(self, interface: str) -> int:
        request = array.array("B", bytes(_SET_SIZES.size))
        _SET_SIZES.pack_into(request, 0, GET_SET_SIZES, 0, 1 << STATISTICS_SET, 0)
        self._ask(interface, request)
        _, _, found, count = _SET_SIZES.unpack_from(request)
        return int(count) if found else 0

    def _read_names(self, interface: str, count: int) -> Sequence[str]:
        header = struct.Struct("=III")
        request = array.array("B", bytes(header.size + _capacity(count) * NAME_BYTES))
        header.pack_into(request, 0, GET_STRINGS, STATISTICS_SET, count)
        self._ask(interface, request)
        returned = min(header.unpack_from(request)[2], count)
        data = request.tobytes()[header.size :]
        texts = (
            data[start : start + NAME_BYTES]
            for start in range(0, returned * NAME_BYTES, NAME_BYTES)
        )
        return [text.split(b"\0", 1)[0].decode("ascii", "replace") for text in texts]

    def _read_values(self, interface: str, count: int) -> Sequence[int]:
        request = array.array("B", bytes(_HEADER.size + _capacity(count) * 8))
        _HEADER.pack_into(request, 0, GET_STATISTICS, count)
        self._ask(interface, request)
        returned = min(_HEADER.unpack_from(request)[1], count)
        return struct.unpack_from(f"={returned}Q", request, _HEADER.size)

    def _ask(self, interface: str, request: array.array[int]) -> None:
        name = interface.encode()
        if len(name) >= INTERFACE_NAME_BYTES:
            raise OSError(f"{interface!r} is not the name of an interface")
        address, _ = request.buffer_info()
        fcntl.ioctl(self._socket.fileno(), SIOCETHTOOL, _IFREQ.pack(name, address))


def _capacity(count: int) -> int:
    return max(MIN_CAPACITY, count * SLACK)
