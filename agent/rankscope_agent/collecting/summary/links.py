"""RDMA ports, interfaces and PCI slots with problems, derived from their counters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from rankscope_agent.collecting.summary.readings import Readings
from rankscope_agent.collecting.summary.windows import Increases
from rankscope_agent.contract.metrics import netdev, rdma
from rankscope_agent.contract.metrics import summary as metrics
from rankscope_agent.contract.model import Metric, Sample

Labels = tuple[str, ...]

Counter = tuple[Labels, Labels, float]
"""The port of a counter, its key, and its value."""

CABLE_ERRORS = ("rx_crc_errors_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy")
"""Errors of an interface that only its link makes: it discards frames for lack of buffers, too."""

ERROR_SECONDS = 900.0
FLAP_SECONDS = 1800.0
TRAFFIC_SECONDS = 300.0

BUSY = 0.5
"""Utilisation from which on a port has a series; alerts call a port full far above it."""

PAUSED = 0.01
"""Likewise: on a healthy RoCE fabric congestion control reacts to one packet in a thousand."""


class LinkSummary:
    """Remembers what ports counted in the last minutes."""

    def __init__(self) -> None:
        self._errors: Increases[Labels] = Increases(ERROR_SECONDS)
        self._flaps: Increases[Labels] = Increases(FLAP_SECONDS)
        self._traffic: Increases[Labels] = Increases(TRAFFIC_SECONDS)

    def samples(self, readings: Readings, now: float) -> Iterator[Sample]:
        """Process the current counters of ports and interfaces, and yield what is out of order."""
        yield from self._ports(readings, now)
        yield from self._interfaces(readings, now)
        for labels, ratio in readings.of(netdev.PCI_LINK_RATIO):
            if ratio < 1:
                yield Sample(metrics.PCI_REDUCED, labels, ratio)
        for rises in (self._errors, self._flaps, self._traffic):
            rises.forget(now)

    def _ports(self, readings: Readings, now: float) -> Iterator[Sample]:
        slaves = _slaves(readings)
        ports = _ports_of_interfaces(readings, slaves)
        yield from self._grown(_errors_of_ports(readings, ports), now, metrics.PORT_RECENT_ERRORS)
        types = (*rdma.RETRANSMISSION_EVENTS, *rdma.TIMEOUT_EVENTS)
        lost = _of_types(readings, rdma.HW_EVENTS, types)
        yield from self._grown(lost, now, metrics.PORT_RECENT_RETRANSMISSIONS)
        losses = _losses_of_slaves(readings, {name: ports[name] for name in slaves.keys() & ports})
        yield from self._lost(readings, losses, now)
        yield from self._traffic_of(readings, now)

    def _lost(self, readings: Readings, losses: Iterable[Counter], now: float) -> Iterator[Sample]:
        """Yield how often ports lost their links: that of a bond, the worst of its slaves.

        Its own state is active while one of them is up.
        """
        virtual = {
            labels["device"]
            for labels, _ in readings.described(rdma.DEVICE_INFO)
            if labels["function"] == rdma.VIRTUAL
        }
        of_slaves: dict[Labels, float] = {}
        for port, key, count in losses:
            self._flaps.add(key, count, now)
            of_slaves[port] = max(of_slaves.get(port, 0.0), self._flaps.increase(key, now))
        for port, count in readings.of(rdma.LINK_FLAPS):
            if port[0] in virtual:
                continue  # it comes and goes with pods
            self._flaps.add(port, count, now)
            flaps = max(self._flaps.increase(port, now), of_slaves.get(port, 0.0))
            if flaps:
                yield Sample(metrics.PORT_RECENT_FLAPS, port, flaps)

    def _grown(self, counters: Iterable[Counter], now: float, as_: Metric) -> Iterator[Sample]:
        """Yield the total increase of counters, by port."""
        grown: dict[Labels, float] = {}
        for port, key, count in counters:
            self._errors.add(key, count, now)
            grown[port] = grown.get(port, 0.0) + self._errors.increase(key, now)
        for of_port, events in grown.items():
            if events:
                yield Sample(as_, of_port, events)

    def _traffic_of(self, readings: Readings, now: float) -> Iterator[Sample]:
        rates = readings.values(rdma.PORT_RATE)
        for port, sent in readings.of(rdma.TRANSMIT_BYTES):
            self._traffic.add(port, sent, now)
            if rates.get(port, 0.0) > 0:
                busy = self._traffic.rate(port, now) / rates[port]
                if busy > BUSY:
                    yield Sample(metrics.PORT_BUSY, port, busy)

    def _interfaces(self, readings: Readings, now: float) -> Iterator[Sample]:
        paused: dict[str, float] = {}
        for labels, seconds in readings.of(netdev.PFC_SECONDS):
            device, *_ = labels
            self._traffic.add(labels, seconds, now)
            paused[device] = max(paused.get(device, 0.0), self._traffic.rate(labels, now))
        for device, part in paused.items():
            if part > PAUSED:
                yield metrics.NIC_PAUSED.sample(part, device=device)
        storms: dict[str, float] = {}
        for labels, count in readings.of(netdev.PAUSE_STORMS):
            device, *_ = labels
            self._errors.add(labels, count, now)
            storms[device] = max(storms.get(device, 0.0), self._errors.increase(labels, now))
        for device, events in storms.items():
            if events:
                yield metrics.NIC_RECENT_STORMS.sample(events, device=device)


def _errors_of_ports(readings: Readings, ports: Mapping[str, Labels]) -> Iterator[Counter]:
    """Yield the link errors that RDMA ports count, and those that their interfaces do (RoCE)."""
    yield from _of_types(readings, rdma.PORT_ERRORS, rdma.LINK_ERRORS)
    for port, count in readings.of(rdma.LINK_RECOVERIES):
        yield port, (rdma.LINK_RECOVERIES.name, *port), count
    for labels, count in readings.of(netdev.PHY_EVENTS):
        interface, type_ = labels
        if interface in ports and type_ in CABLE_ERRORS:
            yield ports[interface], (netdev.PHY_EVENTS.name, *labels), count


def _of_types(readings: Readings, metric: Metric, types: Collection[str]) -> Iterator[Counter]:
    """Yield the counters of these types, by port."""
    for (*port, type_), count in readings.of(metric):
        if type_ in types:
            yield tuple(port), (metric.name, *port, type_), count


def _ports_of_interfaces(
    readings: Readings, slaves: Mapping[str, Mapping[str, str]]
) -> Mapping[str, Labels]:
    """Return the RDMA port of each interface that has one, slaves of bonds included.

    The device of a bond is that of one of its slaves' adapters, or names the bond as its interface.
    """
    adapters = {
        labels["pci"]: (labels["device"], "1") for labels, _ in readings.described(rdma.DEVICE_INFO)
    }
    found: dict[str, Labels] = {
        labels["netdev"]: (labels["device"], labels["port"])
        for labels, _ in readings.described(rdma.PORT_INFO)
        if labels["netdev"]
    }
    for slave, info in slaves.items():
        port = adapters.get(info["pci"] or slave) or found.get(info["bond"])
        if port is not None:
            found[slave] = port
    return found


def _slaves(readings: Readings) -> Mapping[str, Mapping[str, str]]:
    """Return what is known of each slave of a bond."""
    return {
        labels["device"]: labels for labels, _ in readings.described(netdev.INFO) if labels["bond"]
    }


def _losses_of_slaves(readings: Readings, slaves: Mapping[str, Labels]) -> Iterator[Counter]:
    """Yield the lost carriers of slaves of bonds, given the RDMA port of each."""
    for (slave, direction), count in readings.of(netdev.CARRIER_CHANGES):
        if direction == "down" and slave in slaves:
            yield slaves[slave], (*slaves[slave], slave), count
