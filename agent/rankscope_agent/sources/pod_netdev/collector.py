"""Network interfaces inside training pods: traffic, errors, and if permitted kind, MTU and speed.

Multus gives pods macvlan interfaces or virtual functions of adapters; these are in the pod's own
network namespace and not in any file of the node. Their counters can be read by everyone who sees
the pod's processes. The rest requires entering the namespace, which only the node's root may.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rankscope_agent.contract.metrics import pod_netdev as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.host.pod_groups import (
    PodGroups,
    members_of_jobs,
    training_volumes,
)
from rankscope_agent.sources.kernel_files import read_bytes
from rankscope_agent.sources.netdev.counters import MAX_NET_DEV_BYTES
from rankscope_agent.sources.netdev.namespace import NETLINK_IMPORT, may_enter_networks
from rankscope_agent.sources.netdev.tables import Traffic, parse_net_dev
from rankscope_agent.sources.pid_namespace import shows_node_processes
from rankscope_agent.sources.pod_netdev.interfaces import (
    PodNetwork,
    deal_out,
    is_nodes_own,
    read_network,
)
from rankscope_agent.sources.pods.directory import PodDirectory

if TYPE_CHECKING:
    from rankscope_agent.sources.netdev.inside import InsideLink

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Time between two readings of counters: a third of the shortest usual scrape interval (15 s)."""

ENTER_SECONDS = 30.0
"""Time between two visits of namespaces: a visit takes some 10 ms, and MTUs and speeds rarely
change."""

VISIT_SECONDS = 1.0
"""Time limit for all visits of one reading; the kernel answers within milliseconds unless someone
holds its lock of network interfaces."""


class Visit(Protocol):
    """A visit to a namespace, in a separate thread."""

    @property
    def links(self) -> Sequence[InsideLink]:
        """Return the result after the end."""
        ...

    @property
    def refusal(self) -> OSError | None:
        """Return why there is no result."""
        ...

    def start(self) -> None:
        """Start the visit."""
        ...

    def join(self, timeout: float) -> None:
        """Wait for its end."""
        ...

    def is_alive(self) -> bool:
        """Return True until it ends."""
        ...


Enter = Callable[[int, Sequence[str]], Visit]


def create(config: Config, directory: PodDirectory) -> PodNetdevCollector:
    """Create the collector of the interfaces in pods."""
    return PodNetdevCollector(
        config.procfs,
        PodGroups(config.sysfs / "fs" / "cgroup"),
        lambda: (*training_volumes(config.kubelet), *members_of_jobs(directory)),
        lambda uid: directory.job_of(uid) or "",
        _enter() if may_enter_networks(config.procfs, config.sysfs) else None,
        time.monotonic,
        whole_node=shows_node_processes(config.procfs),
    )


def _enter() -> Enter | None:
    try:
        # pyroute2 takes some 12 MiB: only an agent that may enter namespaces needs it.
        with NETLINK_IMPORT:
            from rankscope_agent.sources.netdev.inside import Visit as Entered
    except ImportError as error:
        log.info("namespaces of pods cannot be entered: %s", error)
        return None
    return Entered


class PodNetdevCollector:
    """Reads the interfaces in training pods.

    Args:
        procfs: the node's procfs.
        groups: finds the cgroups of pods.
        members: returns the uids of training pods.
        job_of: returns the job of a pod; empty if unknown.
        enter: creates a visit to a namespace; None if none may be entered.
        clock: returns monotonic seconds.
        whole_node: whether procfs shows the node's processes.
    """

    def __init__(
        self,
        procfs: Path,
        groups: PodGroups,
        members: Callable[[], Iterable[str]],
        job_of: Callable[[str], str],
        enter: Enter | None,
        clock: Callable[[], float],
        *,
        whole_node: bool,
    ) -> None:
        self._procfs = procfs
        self._groups = groups
        self._members = members
        self._job_of = job_of
        self._enter = enter
        self._clock = clock
        self._whole_node = whole_node
        self._looked = self._entered = float("-inf")
        self._samples: tuple[Sample, ...] = ()
        self._inside: Mapping[str, Sequence[InsideLink]] = {}
        self._late: Visit | None = None

    def collect(self) -> Sequence[Sample]:
        """Return the series of the pods' interfaces.

        Raises:
            NoData: processes of pods are not visible.
        """
        if not self._whole_node:
            raise NoData(f"{self._procfs} shows a PID namespace other than the node's")
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            self._samples = tuple(self._look(now))
            self._looked = now
        return self._samples

    def _look(self, now: float) -> Iterator[Sample]:
        networks = self._networks()
        chosen = deal_out(networks)
        if self._enter is not None and now - self._entered >= ENTER_SECONDS:
            self._inside = self._visit(self._enter, networks, chosen)
            self._entered = now
        left_off = 0
        for network in networks:
            names = chosen[network.uid]
            of = (self._job_of(network.uid), network.uid)
            left_off += len(network.traffic) - len(names) + network.unnamed
            for name in names:
                yield from counter_samples((*of, name), network.traffic[name])
            for link in self._inside.get(network.uid, ()):
                if link.name in names:
                    yield from link_samples((*of, link.name), link)
        if networks:
            yield Sample(metrics.LEFT_OFF, (), left_off)

    def _networks(self) -> Sequence[PodNetwork]:
        """Return the networks of training pods that differ from the node's."""
        groups = self._groups.find(self._members())
        if not groups:
            return ()
        before = self._nodes_own()
        found = [read_network(self._procfs, group) for group in groups]
        after = self._nodes_own()
        return [
            network
            for network in found
            if network is not None and not is_nodes_own(network, before, after)
        ]

    def _nodes_own(self) -> Mapping[str, Traffic]:
        """Return the counters of the node's own interfaces."""
        try:
            table = read_bytes(self._procfs / "1" / "net" / "dev", MAX_NET_DEV_BYTES)
        except OSError:
            return {}
        return parse_net_dev(table.decode("utf-8", "replace"))

    def _visit(
        self, enter: Enter, networks: Sequence[PodNetwork], chosen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[InsideLink]]:
        """Visit the namespaces, one after another, until the time is used up.

        A visit that does not end is abandoned, and nothing else is entered until it has ended.
        """
        found: dict[str, Sequence[InsideLink]] = {}
        end = time.monotonic() + VISIT_SECONDS
        for network in networks:
            left = end - time.monotonic()
            if left <= 0 or (self._late is not None and self._late.is_alive()):
                break
            with contextlib.suppress(OSError):  # its process has ended, or may not be traced
                found[network.uid] = self._visit_one(enter, network, chosen[network.uid], left)
        return found

    def _visit_one(
        self, enter: Enter, network: PodNetwork, names: Sequence[str], seconds: float
    ) -> Sequence[InsideLink]:
        """Return the data of some interfaces from a pod's namespace.

        Raises:
            OSError: it is gone, or may not be entered.
            RuntimeError: no thread can be started.
        """
        namespace_path = self._procfs / str(network.process) / "ns" / "net"
        namespace = os.open(namespace_path, os.O_RDONLY | os.O_CLOEXEC)
        visit = enter(namespace, names)
        try:
            visit.start()
        except RuntimeError:  # a limit of threads or memory: the visit, which closes it, never runs
            os.close(namespace)
            raise
        self._late = visit
        visit.join(seconds)
        if visit.is_alive():
            log.warning("the network namespace of pod %s does not answer", network.uid)
            return ()
        if visit.refusal is not None:
            raise visit.refusal
        return visit.links


def counter_samples(labels: tuple[str, ...], traffic: Traffic) -> Iterator[Sample]:
    """Yield the counters of one interface; `labels` are its job, pod and name."""
    yield Sample(metrics.RECEIVE_BYTES, labels, traffic.receive_bytes)
    yield Sample(metrics.TRANSMIT_BYTES, labels, traffic.transmit_bytes)
    yield Sample(metrics.ERRORS, (*labels, "receive"), traffic.receive_errors)
    yield Sample(metrics.ERRORS, (*labels, "transmit"), traffic.transmit_errors)
    yield Sample(metrics.DROPPED, (*labels, "receive"), traffic.receive_dropped)
    yield Sample(metrics.DROPPED, (*labels, "transmit"), traffic.transmit_dropped)


def link_samples(labels: tuple[str, ...], link: InsideLink) -> Iterator[Sample]:
    """Yield the data of a visit for one interface; `labels` are its job, pod and name."""
    yield Sample(metrics.INFO, (*labels, link.kind), 1)
    if link.up is not None:
        yield Sample(metrics.UP, labels, int(link.up))
    if link.mtu is not None:
        yield Sample(metrics.MTU, labels, link.mtu)
    if link.speed is not None:
        yield Sample(metrics.SPEED, labels, link.speed)
