"""One RDMA port: its state, rate and counters, read every second at low cost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.sources.kernel_files import FLAGS, is_stale, read_number, read_text
from rankscope_agent.sources.rdma.bonds import bond_speed
from rankscope_agent.sources.rdma.counters import GONE, PASSING, CounterFolder, Counters
from rankscope_agent.sources.rdma.link_flaps import LinkFlaps
from rankscope_agent.sources.rdma.names import FOLDERS, LIFESPAN, Folder, Rule, rule_for
from rankscope_agent.sources.rdma.values import (
    ACTIVE_STATES,
    Rate,
    label_text,
    parse_rate,
    parse_state,
)

MILLISECONDS = 1000.0
STATUS_BYTES = 64  # `400 Gb/sec (4X NDR)` and the like
DOWNED = "link_downed"


class StatusFile:
    """A small text of a port that rarely changes: `state`, `phys_state`, `rate`.

    Its descriptor is kept. While it cannot be read its text is empty; unless the failure is a
    passing one, it is not read again until `refresh`.
    """

    __slots__ = ("_descriptor", "_failure", "_path", "_raw", "text")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._failure = 0
        self._raw = b""
        self.text = ""

    @property
    def unreadable(self) -> bool:
        """Return True if it exists, and could not be read when that was last tried."""
        return self._failure != 0 and self._failure not in GONE

    def refresh(self) -> None:
        """Let the file be read again if that failed, and opened again if it was replaced."""
        self._failure = 0
        if self._descriptor is not None and is_stale(self._descriptor):
            self.close()

    def read(self) -> bool:
        """Read the file; return whether its text has changed."""
        raw = b"" if self._failure else self._take()
        if raw == self._raw:
            return False
        self._raw = raw
        self.text = raw.decode("ascii", "replace").strip()
        return True

    def _take(self) -> bytes:
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, FLAGS)
            return os.pread(self._descriptor, STATUS_BYTES, 0)
        except OSError as error:
            if error.errno not in PASSING:
                self.close()
                self._failure = error.errno or errno.EIO
            return b""

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Port:
    """A port that is followed as long as its directory exists.

    Args:
        path: its directory, `.../ports/1`.
        interfaces: the directory of network interfaces, `.../class/net`.
        device: the device's name.
        number: the port's number, as text.
        everything: whether to export counters while they are zero.
        may_keep: returns whether one more descriptor may be kept.
    """

    def __init__(
        self,
        path: Path,
        interfaces: Path,
        device: str,
        number: str,
        *,
        everything: bool,
        may_keep: Callable[[], bool],
    ) -> None:
        self.labels = (device, number)
        self._path = path
        self._interfaces = interfaces
        folders = [CounterFolder(path / kind, partial(self._rule, kind)) for kind in FOLDERS]
        self.counters = Counters(folders, self.labels, everything=everything, may_keep=may_keep)
        self._state = StatusFile(path / "state")
        self._physical = StatusFile(path / "phys_state")
        self._rate = StatusFile(path / "rate")
        self._statuses = (self._state, self._physical, self._rate)
        self._watch = LinkFlaps()
        self._active: bool | None = None
        self._status_samples: tuple[Sample, ...] = ()
        self._age_samples: tuple[Sample, ...] = ()
        self._everything = everything
        self._netdev = ""
        self._bond_speed = 0.0
        self._link_layer = ""

    @property
    def gone(self) -> bool:
        """Return True if part of the port has disappeared since the last `refresh`."""
        return self.counters.gone

    def refresh(self) -> None:
        """Find what has appeared or changed and is too rare to be checked every second."""
        for status in self._statuses:
            status.refresh()
            status.read()
        self._link_layer = label_text(read_text(self._path / "link_layer"))
        self.counters.refresh()
        self._netdev = label_text(read_text(self._path / "gid_attrs" / "ndevs" / "0"))
        bond = self._interfaces / self._netdev if self._netdev else None
        self._bond_speed = bond_speed(bond, self.labels[0]) or 0.0 if bond else 0.0
        self._age_samples = tuple(self._age())
        self._status_samples = tuple(self._status())

    def samples(self) -> list[Sample]:
        """Read the port and return its samples."""
        if self._state.read() | self._physical.read() | self._rate.read():
            self._status_samples = tuple(self._status())
        counters = self.counters
        counted = counters.samples()
        flaps = self._watch.observe(self._active, counters.value(DOWNED))
        taken = [*self._status_samples, Sample(metrics.LINK_FLAPS, self.labels, flaps), *counted]
        taken += counters.saturated()
        taken += self._age_samples
        unreadable = counters.unreadable + sum(status.unreadable for status in self._statuses)
        if unreadable:
            taken.append(Sample(metrics.UNREADABLE, self.labels, unreadable))
        if counters.left_off:
            taken.append(Sample(metrics.LEFT_OFF, self.labels, counters.left_off))
        return taken

    def close(self) -> None:
        """Close all descriptors."""
        self.counters.close()
        for status in self._statuses:
            status.close()

    def _rule(self, folder: Folder, name: str) -> Rule | None:
        """Return the conversion of a counter file; InfiniBand has no DCQCN, nor counts of it."""
        rule = rule_for(folder, name)
        if rule and rule.metric is metrics.CONGESTION and self._link_layer == "InfiniBand":
            return replace(rule, always=False)
        return rule

    def _status(self) -> Iterator[Sample]:
        state = parse_state(self._state.text)
        self._active = None if state is None else state in ACTIVE_STATES
        rate = parse_rate(self._rate.text)
        numbers: tuple[tuple[Metric, float | None], ...] = (
            (metrics.PORT_STATE, state),
            (metrics.PORT_PHYSICAL_STATE, parse_state(self._physical.text)),
            (metrics.PORT_RATE, max(rate.bytes_per_second, self._bond_speed) if rate else None),
        )
        for metric, value in numbers:
            if value is not None:
                yield Sample(metric, self.labels, value)
        known = rate or Rate(0.0, "", "")
        info = (self._link_layer, known.width, known.speed, self._netdev)
        yield Sample(metrics.PORT_INFO, (*self.labels, *info), 1)

    def _age(self) -> Iterator[Sample]:
        age = read_number(self._path / "hw_counters" / LIFESPAN) if self._everything else None
        if age is not None:
            yield Sample(metrics.HW_AGE, self.labels, age / MILLISECONDS)
