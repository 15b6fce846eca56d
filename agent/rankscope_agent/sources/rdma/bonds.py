"""The speed of a bond that has one RDMA device for all its links (RoCE LAG).

mlx5 tells the rate of such a device's first link (its `mlx5_query_port_roce` asks one port), while
what the device counts is the traffic of all links.
"""

from __future__ import annotations

from pathlib import Path

from rankscope_agent.sources.kernel_files import names_in, read_text, resolved
from rankscope_agent.sources.netdev.tables import parse_speed

MAX_OWNERS = 16
"""RDMA devices of a bond's link that are looked at; a link has one at most."""


def bond_speed(interface: Path, device: str) -> float | None:
    """Return the bytes per second of a device's bond: of all its links that carry traffic.

    None if the interface is no bond, or one whose links keep RDMA devices of their own, as those of
    different adapters do: each of these has the rate of its own link.

    Args:
        interface: directory of the device's interface.
        device: name of the device.
    """
    slaves = read_text(interface / "bonding" / "slaves").split()
    links = [resolved(interface.parent / slave / "device") for slave in slaves if "/" not in slave]
    adapters = {link.name.rpartition(".")[0] if link is not None else "" for link in links}
    owners = {
        name for link in links if link for name in names_in(link / "infiniband", MAX_OWNERS)[0]
    }
    if len(adapters) != 1 or "" in adapters or owners != {device}:
        return None
    return parse_speed(read_text(interface / "speed"))
