"""Xids that the driver reported to the agent (NVML), for GPUs whose kernel log does not show them.

The driver prints each Xid to the kernel log as well, with more detail. That log is often unreadable
in a container, and has nothing about simulated GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rankscope_agent.contract.kernel.xid import describe
from rankscope_agent.contract.metrics import gpus, kernel_log
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.observed import Series

READS: tuple[Metric, ...] = (gpus.GPU_XIDS, gpus.GPU_XID_TIMESTAMP)

_IN_KERNEL_LOG: Mapping[str, str] = {
    gpus.GPU_XIDS.name: kernel_log.XID_ERRORS.name,
    gpus.GPU_XID_TIMESTAMP.name: kernel_log.XID_LAST.name,
}
"""The kernel log's series that each of the driver's series substitutes."""

_NO_GPU = frozenset(("", "unknown", "other"))

_Xid = tuple[str, str, str]
"""A node, a GPU's UUID or PCI address, and a code."""


def merge(series: Iterable[Series]) -> list[Series]:
    """Return the series with those of the driver renamed to those of the kernel log.

    An Xid of a GPU that is in both is taken from the kernel log only, so that it counts once.
    """
    given = list(series)
    logged = {xid for one in given if one.name == kernel_log.XID_ERRORS.name for xid in _xids(one)}
    merged = []
    for one in given:
        if one.name not in _IN_KERNEL_LOG:
            merged.append(one)
        elif logged.isdisjoint(_xids(one)):
            merged.append(_as_logged(one))
    return merged


def _xids(one: Series) -> Iterator[_Xid]:
    """Yield the names that a GPU's Xid may have: the log lacks the UUID of a lost GPU."""
    for gpu in (one.labels.get("uuid", ""), one.labels.get("pci", "")):
        if gpu not in _NO_GPU:
            yield one.node, gpu, one.labels.get("xid", "")


def _as_logged(one: Series) -> Series:
    code = one.labels.get("xid", "")
    known = describe(int(code)) if code.isascii() and code.isdigit() and len(code) < 7 else None
    severity, action = (known.severity, known.action) if known else ("warn", "investigate")
    labels = {**one.labels, "severity": severity, "action": action}
    return replace(one, name=_IN_KERNEL_LOG[one.name], labels=labels)
