"""The node's network interfaces: state, traffic, errors, pauses and congestion, and its TCP.

Interfaces come from the node's sysfs and /proc/1/net, which show the node's network in a pod too.
What only a socket in that network can query (drivers' statistics, link events) is available if the
agent runs in it (hostNetwork, or no container), and absent otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope_agent.contract.metrics import netdev as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.settings.file_descriptors import share
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.kernel_files import read_bytes
from rankscope_agent.sources.netdev.counters import (
    FILES_KEPT,
    MAX_NET_DEV_BYTES,
    InterfaceFiles,
    OtherInterfaces,
)
from rankscope_agent.sources.netdev.drivers import Adapters, driver_statistics, find_adapters
from rankscope_agent.sources.netdev.ethtool import Ethtool
from rankscope_agent.sources.netdev.interfaces import (
    LOOPBACK,
    MAX_SHOWN,
    Interface,
    describe,
    list_interfaces,
)
from rankscope_agent.sources.netdev.namespace import NETLINK_IMPORT, in_node_network, node_net
from rankscope_agent.sources.netdev.tables import Traffic, parse_net_dev, parse_paired_table

if TYPE_CHECKING:
    from rankscope_agent.sources.netdev.host_links import HostLinks

log = logging.getLogger(__name__)

SLOW_SECONDS = 10.0
"""Time between two scans for interfaces, queries of drivers and PCI devices and readings of tables:
some drivers query their firmware for each answer, and no scrape comes more often."""

MAX_TABLE_BYTES = 1 << 16  # /proc/net/netstat has some 6 KB

TCP_EVENTS: tuple[tuple[str, str], ...] = (
    ("TCPTimeouts", "timeouts"),
    ("TCPSynRetrans", "syn_retransmissions"),
    ("ListenDrops", "listen_drops"),
    ("ListenOverflows", "listen_overflows"),
)
"""Names in the TcpExt line of /proc/net/netstat, and ours."""


def create(config: Config) -> NetdevCollector:
    """Create the collector of the node's interfaces."""
    inside = in_node_network(config.procfs, config.sysfs)
    return NetdevCollector(
        config.sysfs,
        node_net(config.procfs),
        Ethtool() if inside else None,
        _host_links() if inside else None,
        time.time,
        everything=config.once,
    )


def interface_limit() -> int:
    """Return the number of interfaces whose files may be kept open."""
    return min(MAX_SHOWN, share("netdev") // FILES_KEPT)


def _host_links() -> HostLinks | None:
    try:
        # pyroute2 takes some 12 MiB: only an agent in the node's own network needs it.
        with NETLINK_IMPORT:
            from rankscope_agent.sources.netdev.host_links import open_host_links

        return open_host_links()
    except (OSError, ImportError) as error:
        log.info("netlink not available (link events, error details, firmware): %s", error)
    return None


class NetdevCollector:
    """Reads the node's interfaces.

    Args:
        sysfs: the node's sysfs.
        net: the directory with the node's network tables; None if only a pod's are available.
        ethtool: queries drivers; None outside of the node's network.
        links: queries netlink; None outside of the node's network.
        clock: returns the Unix time in seconds.
        everything: whether to export interfaces individually that are neither hardware nor bonds.
    """

    def __init__(
        self,
        sysfs: Path,
        net: Path | None,
        ethtool: Ethtool | None,
        links: HostLinks | None,
        clock: Callable[[], float],
        *,
        everything: bool,
    ) -> None:
        self._sysfs = sysfs
        self._net = net
        self._ethtool = ethtool
        self._links = links
        self._clock = clock
        self._everything = everything
        self._scanned = float("-inf")
        self._files: dict[str, InterfaceFiles] = {}
        self._most_kept = interface_limit()
        self._table: Mapping[str, Traffic] = {}
        self._other = OtherInterfaces()
        self._adapters = Adapters(everything=everything)
        self._changes: dict[str, float] = {}
        self._slow_samples: tuple[Sample, ...] = ()

    def collect(self) -> Iterator[Sample]:
        """Yield the series of the interfaces.

        Raises:
            NoData: no interface of the node is visible.
        """
        now = self._clock()
        gone = any(files.gone for files in self._files.values())
        if gone or not 0 <= now - self._scanned < SLOW_SECONDS:
            self._scan(now)
            self._scanned = now
        if not self._files and self._ethtool is None and not self._table:
            raise NoData(
                f"no network interface of the node in {self._sysfs}/class/net, only this pod's;"
                " mount the node's sysfs and say where with --path.sysfs"
            )
        for name, files in self._files.items():
            yield from files.samples(self._table.get(name))
        yield from self._changed(now)
        yield from self._slow_samples

    def close(self) -> None:
        """Close all descriptors."""
        for files in self._files.values():
            files.close()
        for source in (self._ethtool, self._links):
            if source is not None:
                source.close()

    def _scan(self, now: float) -> None:
        trusted = self._ethtool is not None
        shown, others = list_interfaces(self._sysfs, virtual=self._everything and trusted)
        self._follow(shown)
        self._table = self._read_net_dev()
        slow = [sample for interface in shown for sample in describe(interface)]
        if shown or trusted:
            slow += self._sum_up_others(others)
            slow += self._adapters.samples(find_adapters(self._sysfs, shown), now)
        slow += self._tcp()
        if self._ethtool is not None:
            slow += driver_statistics(self._ethtool, shown)
        slow += self._details(shown)
        if self._links is not None:
            slow += self._links.samples(shown, {name: i for i, name in socket.if_nameindex()})
        self._slow_samples = tuple(slow)

    def _follow(self, shown: Sequence[Interface]) -> None:
        before, self._files = self._files, {}
        for interface in shown:
            files = before.get(interface.name)
            if files is not None and files.interface == interface and not files.gone:
                self._files[interface.name] = before.pop(interface.name)
            else:
                keep = len(self._files) < self._most_kept
                self._files[interface.name] = InterfaceFiles(interface, keep=keep)
        for files in before.values():
            files.close()

    def _read_net_dev(self) -> Mapping[str, Traffic]:
        if self._net is None:
            return {}
        return parse_net_dev(self._read_table("dev", MAX_NET_DEV_BYTES))

    def _read_table(self, name: str, limit: int = MAX_TABLE_BYTES) -> str:
        """Return the text of a network table; empty if there is none."""
        with contextlib.suppress(OSError):
            if self._net is not None:
                return read_bytes(self._net / name, limit).decode("utf-8", "replace")
        return ""

    def _sum_up_others(self, others: int) -> Iterator[Sample]:
        hidden = (LOOPBACK, *self._files)
        if self._table:  # no network is without interfaces: an empty table was not read
            self._other.add({n: table for n, table in self._table.items() if n not in hidden})
        yield Sample(metrics.LEFT_OFF, (), others)
        if others:
            yield from self._other.samples()

    def _tcp(self) -> Iterator[Sample]:
        tcp = parse_paired_table(self._read_table("snmp")).get("Tcp", {})
        extended = parse_paired_table(self._read_table("netstat")).get("TcpExt", {})
        for name, metric in (
            ("OutSegs", metrics.TCP_SENT),
            ("RetransSegs", metrics.TCP_RETRANSMITTED),
        ):
            if name in tcp:
                yield Sample(metric, (), tcp[name])
        for name, event in TCP_EVENTS:
            if name in extended:
                yield Sample(metrics.TCP_EVENTS, (event,), extended[name])

    def _details(self, shown: Sequence[Interface]) -> Iterator[Sample]:
        """Yield detailed errors: in one answer by netlink if possible."""
        by_name = self._details_by_netlink()
        for interface in shown:
            counts = by_name.get(interface.name)
            if counts is None:
                counts = self._files[interface.name].details()
            for name, count in counts.items():
                if count:
                    yield Sample(metrics.ERROR_DETAILS, (interface.name, name), count)

    def _details_by_netlink(self) -> Mapping[str, Mapping[str, int]]:
        if self._links is None:
            return {}
        try:
            by_index = self._links.details()
        except OSError as error:
            log.debug("no statistics by netlink: %s", error)
            return {}
        return {name: by_index[i] for i, name in socket.if_nameindex() if i in by_index}

    def _changed(self, now: float) -> Iterator[Sample]:
        if self._links is not None:
            for name in self._links.changed():
                if name in self._files:
                    self._changes[name] = now
        self._changes = {name: at for name, at in self._changes.items() if name in self._files}
        for name, at in self._changes.items():
            yield Sample(metrics.LAST_CHANGE, (name,), at)
