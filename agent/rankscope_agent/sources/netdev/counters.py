"""Counters of interfaces: exported ones through open descriptors, all others summed up.

Statistics in sysfs are those of the network in which the sysfs was mounted, so a pod with the
node's sysfs reads the node's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from rankscope_agent.contract.metrics import netdev as metrics
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.settings.file_descriptors import raise_if_exhausted
from rankscope_agent.sources.kernel_files import FLAGS, read_bytes
from rankscope_agent.sources.netdev.interfaces import Interface
from rankscope_agent.sources.netdev.tables import Traffic, parse_count, parse_speed

OTHER = "other"
"""The device that stands for all interfaces that are not exported individually."""

NUMBER_BYTES = 32

STATES_UP = ("up", "unknown")
"""Operational states of RFC 2863 in which an interface may carry data; drivers that do not maintain
the state leave it unknown."""

MAX_NET_DEV_BYTES = 4 << 20  # /proc/net/dev of some 30,000 interfaces

TRAFFIC: tuple[tuple[str, Metric, tuple[str, ...]], ...] = (
    ("rx_bytes", metrics.RECEIVE_BYTES, ()),
    ("tx_bytes", metrics.TRANSMIT_BYTES, ()),
)
FAULTS: tuple[tuple[str, Metric, tuple[str, ...]], ...] = (
    ("rx_errors", metrics.ERRORS, ("receive",)),
    ("tx_errors", metrics.ERRORS, ("transmit",)),
    ("rx_dropped", metrics.DROPPED, ("receive",)),
    ("tx_dropped", metrics.DROPPED, ("transmit",)),
)
CARRIER: tuple[tuple[str, str], ...] = (
    ("carrier_up_count", "up"),
    ("carrier_down_count", "down"),
)
DETAILS = (
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
    "collisions",
)
"""Fields of struct rtnl_link_stats64 that describe an error in more detail."""


FILES_KEPT = 1 + len(CARRIER) + len(TRAFFIC) + len(FAULTS)
"""Files of one interface with their own descriptors; its speed is read by path."""


class InterfaceFiles:
    """The files of one exported interface, kept open as long as it exists.

    Args:
        interface: the interface.
        keep: whether there are descriptors for them; otherwise they are opened each time.
    """

    def __init__(self, interface: Interface, *, keep: bool = True) -> None:
        self.interface = interface
        self.gone = False
        self._keep = keep
        self._kept: dict[str, int] = {}
        self._missing: set[str] = set()

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in self._kept.values():
            os.close(descriptor)
        self._kept.clear()

    def samples(self, fallback: Traffic | None) -> Iterator[Sample]:
        """Read the interface and yield its series.

        Args:
            fallback: its counters from /proc/net/dev, for those that sysfs lacks.
        """
        name = self.interface.name
        state = self._text("operstate")
        if state:
            yield Sample(metrics.UP, (name,), int(state in STATES_UP))
        speed = parse_speed(self._text("speed", keep=False))
        if speed is not None:
            yield Sample(metrics.SPEED, (name,), speed)
        yield from self._carrier()
        given = _by_name(fallback)
        for file, metric, labels in TRAFFIC:
            yield from self._count(file, metric, labels, given, at_zero=True)
        for file, metric, labels in FAULTS:
            yield from self._count(file, metric, labels, given, at_zero=not self.interface.rdma)

    def details(self) -> Mapping[str, int]:
        """Return the detailed errors in sysfs."""
        path = self.interface.path / "statistics"
        counts = {name: parse_count(_read(path / name)) for name in DETAILS}
        return {name: count for name, count in counts.items() if count is not None}

    def _carrier(self) -> Iterator[Sample]:
        for file, direction in CARRIER:
            count = parse_count(self._text(file))
            if count is not None:
                yield Sample(metrics.CARRIER_CHANGES, (self.interface.name, direction), count)

    def _count(
        self,
        file: str,
        metric: Metric,
        labels: tuple[str, ...],
        given: Mapping[str, int],
        *,
        at_zero: bool,
    ) -> Iterator[Sample]:
        count = parse_count(self._text(f"statistics/{file}"))
        count = given.get(file) if count is None else count
        if count is not None and (count or at_zero):
            yield Sample(metric, (self.interface.name, *labels), count)

    def _text(self, file: str, *, keep: bool = True) -> str:
        """Return a file's text; empty if there is currently none.

        A missing file is not looked for again. The speed is read by path: while the link is down
        reading it fails (EINVAL), which must not be mistaken for its absence.
        """
        path = self.interface.path / file
        if not keep:
            return _read(path)
        if file in self._missing:
            return ""
        if not self._keep:
            return _read(path)
        try:
            descriptor = self._kept.get(file)
            if descriptor is None:
                descriptor = self._kept[file] = os.open(path, FLAGS)
            return os.pread(descriptor, NUMBER_BYTES, 0).decode("ascii", "replace").strip()
        except OSError as error:
            raise_if_exhausted(error)
            self._forget(file)
            return ""

    def _forget(self, file: str) -> None:
        descriptor = self._kept.pop(file, None)
        if descriptor is not None:  # it existed before: the interface is gone
            os.close(descriptor)
            self.gone = True
        self._missing.add(file)


def _read(path: Path) -> str:
    try:
        return read_bytes(path, NUMBER_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise_if_exhausted(error)
        return ""


def _by_name(traffic: Traffic | None) -> Mapping[str, int]:
    if traffic is None:
        return {}
    return {
        "rx_bytes": traffic.receive_bytes,
        "tx_bytes": traffic.transmit_bytes,
        "rx_errors": traffic.receive_errors,
        "tx_errors": traffic.transmit_errors,
        "rx_dropped": traffic.receive_dropped,
        "tx_dropped": traffic.transmit_dropped,
    }


class OtherInterfaces:
    """The sum over all interfaces that are not exported individually.

    Increases are added up, not absolute values: an interface that disappears with its pod would
    take its count with it, and the sum would look reset.
    """

    def __init__(self) -> None:
        self._last: dict[str, Mapping[str, int]] = {}
        self._sums: dict[str, int] = {}

    def add(self, table: Mapping[str, Traffic]) -> None:
        """Add what these interfaces have counted since the previous call."""
        last, self._last = self._last, {}
        for name, traffic in table.items():
            counts = _by_name(traffic)
            before = last.get(name, {})
            self._last[name] = counts
            for file, count in counts.items():
                counted = before.get(file, 0)
                more = count - counted if count >= counted else count
                self._sums[file] = self._sums.get(file, 0) + more

    def samples(self) -> Iterator[Sample]:
        """Yield the sums."""
        for file, metric, labels in (*TRAFFIC, *FAULTS):
            if file in self._sums:
                yield Sample(metric, (OTHER, *labels), self._sums[file])
