"""One counter file of a port: its descriptor, its last text and the resulting sample."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.kernel_files import FLAGS, read_bytes
from rankscope_agent.sources.rdma.names import Rule
from rankscope_agent.sources.rdma.values import parse_count

COUNTER_BYTES = 32
"""Bytes read of a counter: the largest has 20 digits and a line feed."""


class CounterFile:
    """A counter as last read; `sample` is None while there is nothing to export.

    `saturated` is the key of a counter at the end of its range, else None.

    A counter that has not changed keeps its sample, which is most of the cost of a quiet port.

    Args:
        path: the file.
        rule: its conversion.
        identity: values of the labels for the device, or for device and port.
        everything: whether to export it while it is zero, whatever the rule says.
    """

    __slots__ = (
        "_labels",
        "_mark",
        "_shown_at_zero",
        "descriptor",
        "path",
        "raw",
        "rule",
        "sample",
        "saturated",
        "value",
    )

    def __init__(
        self, path: Path, rule: Rule, identity: tuple[str, ...], *, everything: bool
    ) -> None:
        self.path = path
        self.rule = rule
        self.descriptor: int | None = None
        self.sample: Sample | None = None
        self.value: int | None = None
        self._labels = (*identity, *rule.labels)
        self._shown_at_zero = everything or rule.always
        self.saturated: Sample | None = None
        self.raw = b""
        self._mark = Sample(metrics.SATURATED, (*identity[:2], path.name), 1)

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """The series that this file provides."""
        return self.rule.metric.name, self._labels

    def open(self) -> None:
        """Open a descriptor of the file.

        Raises:
            OSError: the file is gone or cannot be opened.
        """
        if self.descriptor is None:
            self.descriptor = os.open(self.path, FLAGS)

    def close(self) -> None:
        """Close the descriptor."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def read(self) -> None:
        """Read the file.

        Raises:
            OSError: it is gone, or the driver refuses to read it.
        """
        if self.descriptor is None:
            raw = read_bytes(self.path, COUNTER_BYTES)
        else:
            raw = os.pread(self.descriptor, COUNTER_BYTES, 0)
        if raw != self.raw:
            self.take(raw)

    def forget(self) -> None:
        """Drop the sample, because the last text no longer holds."""
        self.raw = b""
        self.value = self.sample = self.saturated = None

    def take(self, raw: bytes) -> None:
        """Process a text that differs from the previous one."""
        self.raw = raw
        self.value = value = parse_count(raw)
        if value is not None and (value or self._shown_at_zero):
            rule = self.rule
            self.sample = Sample(rule.metric, self._labels, value * rule.factor)
            self.saturated = self._mark if value == rule.ceiling else None
        else:
            self.sample = self.saturated = None
