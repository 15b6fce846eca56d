"""Samples of links and adapters that require a netlink socket in the node's network namespace.

A query that the kernel or a driver refuses is not repeated while the agent runs: some drivers write
a line to the kernel's log for every attempt. That an interface is absent is no refusal: it is while
its driver resets the adapter.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from rankscope_agent.contract.metrics import netdev as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.netdev.devlink import Adapter, Devlink, Reporter
from rankscope_agent.sources.netdev.ethtool_netlink import EthtoolNetlink, Fec
from rankscope_agent.sources.netdev.interfaces import Interface
from rankscope_agent.sources.netdev.netlink import LinkMonitor

log = logging.getLogger(__name__)

MAX_REPORTERS = 1024
"""Health reporters that are read: 64 adapters have some 5 each, and some drivers one per port."""

NAME_LENGTH = 64

PASSING = (errno.ENODEV, errno.EINTR, errno.EAGAIN)
"""Answers after which a query is repeated. ENODEV comes from the kernel's net/ethtool, which asks
no driver if an interface is gone or its driver has detached it to reset the adapter."""

LACKING = (errno.EOPNOTSUPP, errno.ENOENT)
"""Answers of drivers without the query, and of kernels without the family: nothing to fix."""


class Ports(Protocol):
    """Queries about single interfaces; OSError if there is no answer."""

    def fec(self, interface: str) -> Fec:
        """Return the numbers of corrected and uncorrected blocks."""
        ...

    def pause_frames(self, interface: str) -> Mapping[str, int]:
        """Return pause frames by direction."""
        ...

    def fastest_mode(self, interface: str) -> float | None:
        """Return the bytes per second of the fastest mode on offer."""
        ...

    def close(self) -> None:
        """Close the socket."""
        ...


class Boards(Protocol):
    """Queries about adapters; OSError if there is no answer."""

    def devices(self) -> Iterable[str]:
        """Return the addresses of adapters."""
        ...

    def adapters(self, pci: str) -> Iterable[Adapter]:
        """Return the driver and firmware of the adapter at an address."""
        ...

    def reporters(self) -> Iterable[Reporter]:
        """Return health reporters."""
        ...

    def close(self) -> None:
        """Close the socket."""
        ...


class Links(Protocol):
    """Receives changes and queries all interfaces; OSError if it cannot."""

    def changed(self) -> Iterator[str]:
        """Yield the interfaces whose state has changed since the previous call."""
        ...

    def details(self) -> Mapping[int, Mapping[str, int]]:
        """Return detailed errors by interface index."""
        ...

    def addresses(self) -> Mapping[tuple[int, str], int]:
        """Return the number of usable addresses by interface index and family."""
        ...

    def close(self) -> None:
        """Close the sockets."""
        ...


def open_host_links() -> HostLinks:
    """Open the sockets in the network of this process.

    Raises:
        OSError: the kernel provides no rtnetlink socket.
    """
    return HostLinks(LinkMonitor(), EthtoolNetlink(), Devlink())


Answer = TypeVar("Answer")


class HostLinks:
    """The node's links by netlink.

    Args:
        links: by rtnetlink.
        ports: by the "ethtool" family.
        boards: by the "devlink" family.
    """

    def __init__(self, links: Links, ports: Ports, boards: Boards) -> None:
        self._links, self._ports, self._boards = links, ports, boards
        self._refused: set[tuple[str, str]] = set()

    def close(self) -> None:
        """Close all sockets."""
        for source in (self._links, self._ports, self._boards):
            source.close()

    def changed(self) -> Iterator[str]:
        """Yield the interfaces whose state or carrier has changed since the previous call."""
        return self._links.changed()

    def details(self) -> Mapping[int, Mapping[str, int]]:
        """Return the detailed errors of all interfaces by index.

        Raises:
            OSError: the kernel does not answer.
        """
        return self._links.details()

    def samples(self, shown: Sequence[Interface], indices: Mapping[str, int]) -> Iterator[Sample]:
        """Yield addresses, modes, error correction, pauses, firmware and health.

        Args:
            shown: interfaces that are exported individually.
            indices: of interfaces by name.
        """
        yield from self._addresses(shown, indices)
        for interface in shown:
            if interface.kind == "physical":
                yield from self._port(interface.name)
        yield from self._adapters()

    def _addresses(
        self, shown: Sequence[Interface], indices: Mapping[str, int]
    ) -> Iterator[Sample]:
        with contextlib.suppress(OSError):
            counted = self._links.addresses()
            for interface in shown:
                index = indices.get(interface.name)
                for family in ("ipv4", "ipv6"):
                    if index is not None:
                        count = counted.get((index, family), 0)
                        yield Sample(metrics.ADDRESSES, (interface.name, family), count)

    def _port(self, name: str) -> Iterator[Sample]:
        fastest = self._ask("mode", name, lambda: self._ports.fastest_mode(name))
        if fastest is not None:
            yield Sample(metrics.FASTEST_MODE, (name,), fastest)
        fec = self._ask("fec", name, lambda: self._ports.fec(name)) or Fec(None, None)
        for result, blocks in (("corrected", fec.corrected), ("uncorrectable", fec.uncorrectable)):
            if blocks is not None:
                yield Sample(metrics.FEC_BLOCKS, (name, result), blocks)
        pauses = self._ask("pause", name, lambda: self._ports.pause_frames(name)) or {}
        for direction, frames in pauses.items():
            yield Sample(metrics.LINK_PAUSE_FRAMES, (name, direction), frames)

    def _adapters(self) -> Iterator[Sample]:
        for pci in self._ask("list", "", lambda: [*self._boards.devices()]) or ():
            yield from self._firmware(pci)
        yield from _health(self._ask("reporters", "", lambda: [*self._boards.reporters()]) or ())

    def _firmware(self, pci: str) -> Iterator[Sample]:
        for adapter in self._ask("firmware", pci, lambda: [*self._boards.adapters(pci)]) or ():
            labels = (adapter.pci, _name(adapter.driver), _name(adapter.firmware))
            yield Sample(metrics.ADAPTER_INFO, labels, 1)

    def _ask(self, question: str, of: str, ask: Callable[[], Answer]) -> Answer | None:
        """Return an answer; None if there is none now, or it was refused before."""
        if (question, of) in self._refused:
            return None
        try:
            return ask()
        except OSError as error:
            passes = error.errno in PASSING
            level = logging.DEBUG if passes or error.errno in LACKING else logging.WARNING
            log.log(level, "no %s of %s by netlink: %s", question, of or "adapters", error)
            if not passes:
                self._refused.add((question, of))
            return None


def _health(reporters: Iterable[Reporter]) -> Iterator[Sample]:
    """Yield each adapter's total errors, and by name the reporters that are currently in error."""
    errors: dict[str, int] = defaultdict(int)
    ill: dict[tuple[str, str], None] = {}  # each port of an adapter may have one of the same name
    for reporter in itertools.islice(reporters, MAX_REPORTERS):
        errors[reporter.pci] += reporter.errors
        if not reporter.healthy:
            ill[reporter.pci, _name(reporter.name)] = None
    for labels in ill:
        yield Sample(metrics.ADAPTER_UNHEALTHY, labels, 1)
    for pci, count in errors.items():
        yield Sample(metrics.ADAPTER_HEALTH_ERRORS, (pci,), count)


def _name(text: str) -> str:
    return "".join(character for character in text[:NAME_LENGTH] if character.isprintable())
