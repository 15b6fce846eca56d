"""The RDMA port that a series is about: by the port's own name, its interface's or its adapter's.

Two ports of an adapter that form a bond have one RDMA device (`mlx5_bond_0`), whose interface is
the bond: what the bond's slaves count is that device's. A bond itself loses its carrier only if all
of its slaves do, so their counts take the place of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rankscope_agent.contract.metrics import netdev, rdma
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.numeric.arrays import Floats

READS: tuple[Metric, ...] = (rdma.DEVICE_INFO, rdma.PORT_INFO, netdev.INFO)

OF_LINKS = frozenset((rdma.PORT_STATE, rdma.PORT_RATE, rdma.LINK_FLAPS))
"""Series that say something of a link, but of a virtual function only whether a pod uses it."""

FIRST = "1"
"""The port of what an adapter counts for all of its ports; nearly all have only this one."""

Name = tuple[str, str]
"""A node, and an interface or a PCI function of it."""


Port = tuple[str, str, str]
"""The node, device and number of an RDMA port."""


@dataclass(frozen=True, slots=True)
class _Names:
    """The ports behind names that are not their own.

    Args:
        ports: by an interface or a PCI function.
        slaves: by an interface that belongs to a bond.
        bonds: those with at least one of these.
    """

    ports: Mapping[Name, Port]
    slaves: Mapping[Name, Port]
    bonds: Collection[Name]

    def of(self, series: Series) -> Port | None:
        """Return the port of a series about an interface or a PCI function, None if unknown."""
        return None if _name(series) in self.bonds else self.ports.get(_name(series))


def of_ports(observed: Observed, metrics: Sequence[Metric]) -> Iterator[tuple[Series, Port]]:
    """Yield the series of some metrics and their ports; those of a bond's slaves are put together.

    Series whose port is unknown are left out, and those about the links of virtual functions.
    """
    names = _names(observed)
    virtual = virtual_devices(observed)
    shared: dict[tuple[Port, str, frozenset[Name]], list[Series]] = defaultdict(list)
    for metric in metrics:
        of_rdma, of_link = _is_of_rdma(metric), metric in OF_LINKS
        for series in observed.of(metric):
            if of_link and _name(series) in virtual:
                continue
            slave = None if of_rdma else names.slaves.get(_name(series))
            if slave is not None:
                others = frozenset(series.labels.items() - {("device", series.labels["device"])})
                shared[slave, series.name, others].append(series)
            elif (port := _own(series) if of_rdma else names.of(series)) is not None:
                yield series, port
    for (port, *_), several in shared.items():
        yield together(several), port


def virtual_devices(observed: Observed) -> Collection[Name]:
    """Return the devices, with their nodes, that are virtual functions of others."""
    infos = observed.of(rdma.DEVICE_INFO, function=rdma.VIRTUAL)
    return {(series.node, series.labels.get("device", "")) for series in infos}


def together(several: Sequence[Series]) -> Series:
    """Return what counters counted together since their first values, across resets of each.

    Their own sum would seem reset if one of them is, or is absent for a while. Of lost carriers the
    largest number counts: a switch that takes both links of a bond down does that once.
    """
    times = np.unique(np.concatenate([series.times for series in several]))
    grown = [_grown(series, times) for series in several]
    is_carrier = several[0].name == netdev.CARRIER_CHANGES.name
    values = np.max(grown, axis=0) if is_carrier else np.sum(grown, axis=0)
    return replace(several[0], times=times, values=values)


def _grown(series: Series, times: Floats) -> Floats:
    """Return by how much a counter has grown until each of these times."""
    steps = np.diff(series.values)
    steps = np.where(steps < 0, series.values[1:], steps)
    total = np.concatenate([[0.0], np.cumsum(steps)])
    return total[np.maximum(np.searchsorted(series.times, times, side="right") - 1, 0)]


def _is_of_rdma(metric: Metric) -> bool:
    return metric.labels[:2] == rdma.PORT or metric == rdma.DEVICE_LOST


def _name(series: Series) -> Name:
    return series.node, series.labels.get("device", series.labels.get("pci", ""))


def _own(series: Series) -> Port | None:
    device, number = series.labels.get("device", ""), series.labels.get("port", FIRST)
    return (series.node, device, number) if device else None


def _names(observed: Observed) -> _Names:
    ports: dict[Name, Port] = {}
    for series in observed.of(rdma.DEVICE_INFO):
        device = series.labels.get("device", "")
        ports[series.node, series.labels.get("pci", "")] = (series.node, device, FIRST)
    for series in observed.of(rdma.PORT_INFO):
        device, number = series.labels.get("device", ""), series.labels.get("port", FIRST)
        ports[series.node, series.labels.get("netdev", "")] = (series.node, device, number)
    known = {name: port for name, port in ports.items() if name[1] and port[1]}
    slaves: dict[Name, Port] = {}
    bonds: set[Name] = set()
    for series in sorted(observed.of(netdev.INFO), key=lambda one: one.times[-1]):
        # A slave that has an RDMA device of its own, which some drivers leave it, counts for that.
        bond = (series.node, series.labels.get("bond", ""))
        own = (series.node, series.labels.get("pci", ""))
        port = known.get(_name(series)) or known.get(own) or known.get(bond)
        slaves.pop(_name(series), None)
        if bond[1] and port is not None:
            slaves[_name(series)] = port
            bonds.add(bond)
    return _Names(known, slaves, bonds)
