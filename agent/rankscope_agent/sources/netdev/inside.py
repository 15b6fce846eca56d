"""Links of another network namespace: their kind, state, MTU and speed, by netlink.

A socket belongs to the network that its thread was in when it was made, so a thread of its own
enters the namespace, asks and ends; no other thread of the agent ever leaves the node's network.
pyroute2 speaks netlink: imported only where the agent runs in the node's own network.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyroute2 import IPRoute, netns

from rankscope_agent.sources.netdev.ethtool_netlink import EthtoolNetlink
from rankscope_agent.sources.netdev.netlink import refused_as_os_error

HARDWARE = "hardware"

MAX_KIND = 15
"""Characters of a kind of link; the kernel's longest is ip6erspan or vti6, names of modules."""


class InsideLink(NamedTuple):
    """An interface as its own network describes it.

    Args:
        kind: the kernel's word for a software interface, `hardware` for a device.
        mtu: bytes, None where the kernel is silent.
        up: None where the driver does not keep the operational state.
        speed: bytes per second, None while unknown.
    """

    name: str
    kind: str
    mtu: int | None
    up: bool | None
    speed: float | None


class Visit(threading.Thread):
    """One look into a namespace.

    Args:
        namespace: a descriptor of it, which the visit closes: a caller that waits no longer
            must not close it under a thread that has yet to enter.
        names: interfaces to ask about; a namespace may hold any number of others.
    """

    def __init__(self, namespace: int, names: Sequence[str]) -> None:
        super().__init__(name="pod-network", daemon=True)
        self._namespace = namespace
        self._names = names
        self.links: tuple[InsideLink, ...] = ()
        self.refusal: OSError | None = None

    def run(self) -> None:
        """Enter, ask and end; what the kernel refuses is kept in `refusal`."""
        try:
            netns.setns(self._namespace, flags=0, fork=False)
            self.links = tuple(links_here(self._names))
        except OSError as error:
            self.refusal = error
        finally:
            os.close(self._namespace)


def links_here(names: Sequence[str]) -> Iterator[InsideLink]:
    """Yield what the network of the calling thread says of interfaces; absent ones are left out.

    Raises:
        OSError: the kernel has no socket to give.
    """
    with contextlib.closing(IPRoute()) as route, contextlib.closing(EthtoolNetlink()) as ports:
        for name in names:
            with contextlib.suppress(OSError):
                yield _link(route, ports, name)


def _link(route: Any, ports: EthtoolNetlink, name: str) -> InsideLink:
    with refused_as_os_error():
        message = route.link("get", ifname=name)[0]
    try:
        speed = ports.speed(name)
    except OSError:  # a driver that knows of no speed, as of macvlan over a link that is down
        speed = None
    return inside_link(message, name, speed)


def inside_link(message: Any, name: str, speed: float | None) -> InsideLink:
    """Read a link message."""
    linked = message.get("IFLA_LINKINFO")
    kind = linked.get("IFLA_INFO_KIND") if linked is not None else None
    state = message.get("IFLA_OPERSTATE")
    mtu = message.get("IFLA_MTU")
    return InsideLink(
        name,
        str(kind)[:MAX_KIND] if kind else HARDWARE,
        None if mtu is None else int(mtu),
        None if state in (None, "UNKNOWN") else state == "UP",
        speed,
    )
