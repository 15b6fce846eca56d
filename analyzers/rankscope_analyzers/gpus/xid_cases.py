"""Groups each node's GPU errors by the rules for its kernel log. Pure.

`xid_incidents` puts the cases of all nodes together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.kernel.events import KernelEvent
from rankscope_agent.contract.kernel.host_incidents import host_incidents, settled
from rankscope_agent.contract.kernel.incidents import (
    CHAIN_SECONDS,
    Incident,
    gpu_incidents,
    on_gpus,
)
from rankscope_agent.contract.kernel.log import Seen
from rankscope_agent.contract.kernel.vocabulary import Action, Cause, Severity
from rankscope_agent.contract.kernel.xid import CLEAN_UP
from rankscope_analyzers.gpus.errors import GpuError

PEER_REFUSED = 137
"""A peer's access was refused: what remains when the GPU at the other end has failed."""

FOLLOWERS = frozenset({*CLEAN_UP, PEER_REFUSED})
"""Codes that other GPUs of a job show because one of them failed."""


@dataclass(frozen=True, slots=True)
class GpuLocation:
    """A GPU or NVSwitch; texts are empty where unknown."""

    node: str
    gpu: str
    uuid: str
    pci: str

    def __str__(self) -> str:
        name = f"GPU {self.gpu}" if self.gpu else "a GPU"
        parts = ", ".join(part for part in (self.pci, self.uuid) if part)
        return f"{name} of node {self.node}" + (f" ({parts})" if parts else "")


@dataclass(frozen=True, slots=True)
class Case:
    """An incident of one node that becomes a finding.

    Args:
        sentence: what happened, without its subject.
        own: errors of the GPU that it began on.
        effects: errors of others.
        times_seen: how often it recurred after a pause.
    """

    cause: Cause
    action: Action
    severity: Severity
    code: int | None
    sentence: str
    own: tuple[GpuError, ...]
    effects: tuple[GpuError, ...] = ()
    times_seen: int = 1

    @property
    def location(self) -> GpuLocation:
        """Return the GPU that it began on."""
        return location_of(self.own[0])

    @property
    def errors(self) -> tuple[GpuError, ...]:
        """Return all of its errors."""
        return self.own + self.effects

    @property
    def first(self) -> float:
        """Return when it began."""
        return min(error.unix_seconds for error in self.own)

    @property
    def last(self) -> float:
        """Return when it was last seen."""
        return max(error.unix_seconds for error in self.own)

    @property
    def jobs(self) -> frozenset[str]:
        """Return the jobs that were hit."""
        return frozenset(error.job_id for error in self.errors if error.job_id)

    @property
    def is_grave(self) -> bool:
        """Return True if it ends what runs on the GPU, and is not a program's own fault."""
        return self.cause != "app" and self.severity in {"error", "fatal"}

    @property
    def is_effect(self) -> bool:
        """Return True if all of it may be the consequence of something else."""
        return self.cause == "app" and all(error.code in FOLLOWERS for error in self.own)


def location_of(error: GpuError) -> GpuLocation:
    """Return where an error was."""
    return GpuLocation(error.node, error.gpu, error.uuid, error.pci)


def cases(errors: Iterable[GpuError]) -> Iterator[Case]:
    """Yield the cases that the rules for one node's log find among each node's errors."""
    nodes: dict[str, list[GpuError]] = defaultdict(list)
    for error in sorted(errors, key=lambda error: error.unix_seconds):
        nodes[error.node].append(error)
    for own in nodes.values():
        for cluster in _clusters(own):
            yield from _cases_of(cluster)


def _clusters(errors: Sequence[GpuError]) -> Iterator[list[GpuError]]:
    """Split a node's errors, in order of time, where nothing happened for a while."""
    cluster: list[GpuError] = []
    for error in errors:
        if cluster and error.unix_seconds - cluster[-1].unix_seconds > CHAIN_SECONDS:
            yield cluster
            cluster = []
        cluster.append(error)
    if cluster:
        yield cluster


def _cases_of(cluster: Sequence[GpuError]) -> Iterator[Case]:
    groups: dict[tuple[object, ...], list[GpuError]] = defaultdict(list)
    for error in cluster:
        key = (error.kind, error.pci, error.code, error.severity, error.action, error.job_id)
        groups[key].append(error)
    members = list(groups.values())
    gpu_events, others = on_gpus(_seen(order, same) for order, same in enumerate(members))
    for incident in settled(tuple(gpu_incidents(gpu_events)), tuple(host_incidents(others))):
        yield _case(incident, members)


def _seen(order: int, same: Sequence[GpuError]) -> Seen:
    """Return equal errors as the event that a log would have shown."""
    one = same[0]
    times = [error.unix_seconds for error in same]
    event = KernelEvent(
        kind=one.kind,
        cause=one.cause,
        action=one.action,
        severity=one.severity,
        text=name_of(one),
        code=one.code,
        pci=one.pci or None,
    )
    count = sum(error.count for error in same)
    return Seen(event, order, b"", b"", count, times=(min(times), max(times)))


def name_of(error: GpuError) -> str:
    """Return the common name of an error: `Xid 79`, `SXid 12028`, or its kind in words."""
    if error.code is None:
        return error.kind.replace("_", " ")
    known = str(error.code) if error.code else "that is not in the tables"
    return f"{'Xid' if error.kind == 'xid' else 'SXid'} {known}"


def _case(incident: Incident, members: Sequence[Sequence[GpuError]]) -> Case:
    root = members[incident.root.order][0]
    errors = [error for one in incident.events for error in members[one.order]]
    here = [error for error in errors if location_of(error) == location_of(root)]
    elsewhere = [error for error in errors if location_of(error) != location_of(root)]
    first = sorted(here, key=lambda error: error.kind != root.kind or error.code != root.code)
    return Case(
        cause=incident.cause,
        action=incident.action,
        severity=incident.severity,
        code=incident.root.event.code,
        sentence=incident.summary.partition(": ")[2] or incident.summary,
        own=tuple(first),
        effects=tuple(elsewhere),
    )
