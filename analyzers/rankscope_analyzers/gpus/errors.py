"""GPU errors from series: what agents read in kernel logs, when, and which job was affected.

Counters show how often, the time stamps that accompany them exactly when. Series of ranks and
allocation show which job held the GPU then. Pure: from series to errors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from rankscope_agent.contract.kernel.events import Kind
from rankscope_agent.contract.kernel.vocabulary import ACTIONS, SEVERITIES, Action, Cause, Severity
from rankscope_agent.contract.kernel.xid import describe
from rankscope_agent.contract.metrics import kernel_log, pods, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.numeric.arrays import Floats

SAME_MOMENT_SECONDS = 1.0
"""Time stamps that differ by less are the same: the kernel's clock is aligned with the node's at
each look, which changes it by milliseconds."""

HELD_SECONDS = 300.0
"""A GPU that a job held this long before an error may have been held when it occurred: series end
when a pod is gone, possibly because of the error, and Prometheus itself looks back five minutes."""

COUNTERS: Mapping[str, tuple[Metric, Kind]] = {
    kernel_log.XID_ERRORS.name: (kernel_log.XID_LAST, "xid"),
    kernel_log.SXID_ERRORS.name: (kernel_log.SXID_LAST, "sxid"),
    kernel_log.GPU_FALLEN.name: (kernel_log.KERNEL_LAST_EVENT, "gpu_fallen_off_bus"),
    kernel_log.GPU_INIT_FAILURES.name: (kernel_log.KERNEL_LAST_EVENT, "gpu_init_failure"),
}
"""Counters of errors, the series with the time of the last one, and what they count."""

HOLDERS = (pods.GPU_ALLOCATION_INFO.name, training.RANK_INFO.name)

READS: tuple[Metric, ...] = (
    kernel_log.XID_ERRORS,
    kernel_log.SXID_ERRORS,
    kernel_log.GPU_FALLEN,
    kernel_log.GPU_INIT_FAILURES,
    *dict.fromkeys(stamp for stamp, _ in COUNTERS.values()),
    pods.GPU_ALLOCATION_INFO,
    training.RANK_INFO,
)
"""All series that errors are read from."""

SXID_ACTIONS: Mapping[Severity, Action] = {
    "fatal": "reset_gpu",
    "error": "reset_gpu",
    "warn": "investigate",
    "info": "none",
}

PLAIN: Mapping[Kind, tuple[Cause, Action]] = {
    "gpu_fallen_off_bus": ("pcie", "reboot_node"),
    "gpu_init_failure": ("gpu_hardware", "reboot_node"),
}
"""Cause and action for errors without a code, as lines of the log that have one give them."""

UNKNOWN_CODE = 0
"""Stands for codes that the agent does not know: no Xid has this number."""


class TimedSeries(Protocol):
    """A series of one node: `times` (T,) Unix seconds, ascending, and `values` (T,) without NaN."""

    @property
    def node(self) -> str:
        """Return its node."""
        ...

    @property
    def name(self) -> str:
        """Return the metric's name."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Return its labels."""
        ...

    @property
    def times(self) -> Floats:
        """Return when it was read."""
        ...

    @property
    def values(self) -> Floats:
        """Return what was read."""
        ...


@dataclass(frozen=True, slots=True)
class GpuError:
    """One kind of error of one GPU or NVSwitch, as far as it increased between two readings.

    Args:
        unix_seconds: when it last happened in this time.
        gpu: the driver's index; gpu and uuid are empty for a switch and if unknown.
        pci: `domain:bus:device`, empty if the log does not have it.
        code: Xid or SXid, `UNKNOWN_CODE` for one that is not in the tables, None if it has none.
        count: how often.
        job_id: the job that held the GPU, empty if unknown or several did.
        rank: which of its ranks, empty likewise.
    """

    unix_seconds: float
    node: str
    gpu: str
    uuid: str
    pci: str
    kind: Kind
    code: int | None
    cause: Cause
    severity: Severity
    action: Action
    count: int
    job_id: str = ""
    rank: str = ""


@dataclass(frozen=True, slots=True)
class _Holder:
    """A job's rank that held a GPU at these times."""

    job_id: str
    rank: str
    times: Floats

    def age(self, at: float) -> float:
        """Return how long before a time it last did, negative if it only did so afterwards."""
        past = int(np.searchsorted(self.times, at, side="right"))
        return at - float(self.times[max(0, past - 1)])


def errors(series: Iterable[TimedSeries], since_unix_seconds: float) -> tuple[GpuError, ...]:
    """Return the errors since a time, in order of time.

    An error in the first reading includes all that were counted before it.
    """
    by_name: dict[str, list[TimedSeries]] = defaultdict(list)
    for one in series:
        if len(one.values):
            by_name[one.name].append(one)
    stamps = {_stamp_key(one): one for name in _STAMPS for one in by_name[name]}
    holders = _holders(one for name in HOLDERS for one in by_name[name])
    found = [
        error
        for name in COUNTERS
        for counter in by_name[name]
        for error in _errors_of(counter, stamps, holders, since_unix_seconds)
    ]
    return tuple(sorted(found, key=lambda error: (error.unix_seconds, error.node, error.pci)))


_STAMPS = tuple(dict.fromkeys(metric.name for metric, _ in COUNTERS.values()))
_Key = tuple[str, str, tuple[str, ...]]


def _stamp_key(stamp: TimedSeries) -> _Key:
    metric = next(metric for metric, _ in COUNTERS.values() if metric.name == stamp.name)
    return stamp.node, stamp.name, tuple(stamp.labels.get(name, "") for name in metric.labels)


def _errors_of(
    counter: TimedSeries,
    stamps: Mapping[_Key, TimedSeries],
    holders: Mapping[str, Sequence[_Holder]],
    since: float,
) -> Iterator[GpuError]:
    metric, kind = COUNTERS[counter.name]
    labels = {**counter.labels, "kind": kind}
    key = counter.node, metric.name, tuple(labels.get(name, "") for name in metric.labels)
    for at, count in _growth(counter, stamps.get(key)):
        if at >= since:
            uuid = labels.get("uuid", "")
            job_id, rank = _holder(holders.get(uuid, ()), at) if uuid else ("", "")
            code, cause, severity, action = _meaning(kind, labels)
            yield GpuError(
                unix_seconds=at,
                node=counter.node,
                gpu=labels.get("gpu", ""),
                uuid=uuid,
                pci="" if labels.get("pci") in _NO_ADDRESS else labels.get("pci", ""),
                kind=kind,
                code=code,
                cause=cause,
                severity=severity,
                action=action,
                count=count,
                job_id=job_id,
                rank=rank,
            )


_NO_ADDRESS = ("unknown", "other")


def _growth(counter: TimedSeries, stamp: TimedSeries | None) -> Iterator[tuple[float, int]]:
    """Yield when a counter grew and by how much.

    An agent that lost its state counts its boot's log again: an increase with the time of the last
    error is new only as far as it exceeds what was already counted. If errors of earlier boots are
    then missing, further ones are counted from there.
    """
    known, last, newest = 0.0, 0.0, float("-inf")
    for position, (read_at, value) in enumerate(zip(counter.times, counter.values, strict=True)):
        at = float(read_at) if stamp is None else _value_at(stamp, float(read_at))
        if at > newest + SAME_MOMENT_SECONDS:
            base = next((before for before in (known, last) if value >= before), 0.0)
            grown, known = value - base, value
        else:
            grown = max(0.0, value - known)
            known = max(known, value)
        if grown > 0 and (stamp is not None or position):
            yield at, int(grown)
        last, newest = value, max(newest, at)


def _value_at(series: TimedSeries, at: float) -> float:
    """Return the last value read by a time, the first one if there was none."""
    past = int(np.searchsorted(series.times, at, side="right"))
    return float(series.values[max(0, past - 1)])


def _meaning(kind: Kind, labels: Mapping[str, str]) -> tuple[int | None, Cause, Severity, Action]:
    if kind in PLAIN:
        cause, action = PLAIN[kind]
        return None, cause, "fatal", action
    text = labels.get(kind, "")
    code = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else UNKNOWN_CODE
    known = describe(code)
    severity = cast(
        "Severity", labels["severity"] if labels.get("severity") in SEVERITIES else known.severity
    )
    if kind == "sxid":
        return code, "nvlink_fabric", severity, SXID_ACTIONS[severity]
    action = cast("Action", labels["action"] if labels.get("action") in ACTIONS else known.action)
    return code, known.cause, severity, action


def _holders(series: Iterable[TimedSeries]) -> Mapping[str, Sequence[_Holder]]:
    """Return who held each GPU; the uuid of a shared GPU is followed by `::` and a number."""
    found: dict[str, list[_Holder]] = defaultdict(list)
    for one in series:
        uuid = one.labels.get("uuid", "").partition("::")[0]
        job_id = one.labels.get("job_id", "")
        if uuid and job_id:
            found[uuid].append(_Holder(job_id, one.labels.get("rank", ""), one.times))
    return found


def _holder(holders: Sequence[_Holder], at: float) -> tuple[str, str]:
    """Return the job and rank that held a GPU at a time, empty texts if several did or none."""
    ages = [(holder.age(at), holder) for holder in holders]
    past = [(age, holder) for age, holder in ages if 0 <= age <= HELD_SECONDS]
    near = past or [(-age, holder) for age, holder in ages if -HELD_SECONDS <= age < 0]
    if not near:
        return "", ""
    nearest = min(age for age, _ in near)
    last = [holder for age, holder in near if age == nearest]
    jobs = {holder.job_id for holder in last}
    ranks = {holder.rank for holder in last if holder.rank}
    if len(jobs) > 1:
        return "", ""
    return jobs.pop(), ranks.pop() if len(ranks) == 1 else ""
