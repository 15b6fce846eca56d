"""Links of another network namespace: their kind, state, MTU and speed, by netlink.

A socket belongs to the network that its thread was in when it was created, so a separate thread
enters the namespace, queries it and ends; no other thread of the agent ever leaves the node's
network. pyroute2 handles netlink: imported only if the agent runs in the node's own network.
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
"""Characters of a kind of link; the kernel's longest are names of modules such as ip6erspan."""


class InsideLink(NamedTuple):
    """An interface as described by its own network.

    Args:
        kind: the kernel's word for a software interface, `hardware` for a device.
        mtu: bytes; None if the kernel does not report it.
        up: None if the driver does not maintain the operational state.
        speed: bytes per second; None while unknown.
    """

    name: str
    kind: str
    mtu: int | None
    up: bool | None
    speed: float | None


class Visit(threading.Thread):
    """One visit to a namespace.

    Args:
        namespace: a descriptor of it, which the visit closes: a caller that has stopped waiting
            must not close it before the thread has entered.
        names: interfaces to query; a namespace may contain any number of others.
    """

    def __init__(self, namespace: int, names: Sequence[str]) -> None:
        super().__init__(name="pod-network", daemon=True)
        self._namespace = namespace
        self._names = names
        self.links: tuple[InsideLink, ...] = ()
        self.refusal: OSError | None = None

    def run(self) -> None:
        """Enter the namespace, query it and end; a refusal by the kernel is kept in `refusal`."""
        try:
            netns.setns(self._namespace, flags=0, fork=False)
            self.links = tuple(links_here(self._names))
        except OSError as error:
            self.refusal = error
        finally:
            os.close(self._namespace)


def links_here(names: Sequence[str]) -> Iterator[InsideLink]:
    """Yield the interfaces in the calling thread's network; absent ones are left out.

    Raises:
        OSError: the kernel provides no socket.
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
    except OSError:  # a driver that does not know its speed, as macvlan over a link that is down
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
