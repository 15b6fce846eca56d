"""What must hold after each fault: pure functions of what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.chaos.alerting import Alert
from benchmarks.chaos.server import Use

MOST_GROWTH = 1.5
MOST_MORE_MIB = 32.0
"""Limits of resident memory, whichever allows more: the watch remembers jobs, and allocators round
up."""

MOST_MORE_DESCRIPTORS, MOST_MORE_THREADS = 16, 6
"""Limits for connections that are just open, and threads that serve them."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one rank.

    Args:
        written: the ring's own counter.
        counted: the count on the agent's page.
        lost: records that were overwritten before the agent could read them, by its own count.
    """

    written: int
    counted: int
    lost: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a fault, during it and after the chain had time to settle.

    Args:
        exit_codes: of the short job's ranks; None of one that did not end.
        steps: that each rank made.
        changed: names of the job's files that differ from those of the run without the probe.
        ranks: how many must have a ring.
        records: of each rank that has one.
        pages: how many the agent served.
        empty: those without any of its collectors.
        unanswered: requests that it did not answer although nothing prevented it.
        missing: alerts that should be firing and are not.
        doubled: alerts that began twice.
        died: processes that ended although no fault ended them.
        knows: True if the watch has the verdict on the long job.
        accused: ranks that the watch wrongly names in it.
        before, after: resources of processes, by their names.
    """

    exit_codes: Sequence[int | None] = (0,)
    steps: int = 0
    changed: Sequence[str] = ()
    ranks: int = 0
    records: Mapping[int, Records] = field(default_factory=dict)
    pages: int = 1
    empty: int = 0
    unanswered: int = 0
    missing: Sequence[Alert] = ()
    doubled: Sequence[str] = ()
    died: Sequence[str] = ()
    knows: bool = True
    accused: Sequence[str] = ()
    before: Mapping[str, Use] = field(default_factory=dict)
    after: Mapping[str, Use] = field(default_factory=dict)


def _exits(seen: Seen) -> Iterator[str]:
    if set(seen.exit_codes) != {0}:
        yield f"exit codes {list(seen.exit_codes)}"


def _files(seen: Seen) -> Iterator[str]:
    yield from (f"{name} differs" for name in seen.changed)


def _lost(seen: Seen) -> Iterator[str]:
    if len(seen.records) < seen.ranks:
        yield f"{len(seen.records)} of {seen.ranks} ranks have a ring"
    for rank, one in seen.records.items():
        if one.written < seen.steps - 1:  # the last step ends with the process
            yield f"rank {rank}: {one.written} of {seen.steps} steps in its ring"
        if one.counted + one.lost < one.written:
            yield f"rank {rank}: {one.counted} of {one.written} counted, {one.lost} reported lost"


def _repeated(seen: Seen) -> Iterator[str]:
    for rank, one in seen.records.items():
        if one.counted + one.lost > one.written:
            yield f"rank {rank}: {one.counted} counted and {one.lost} lost of {one.written}"


def _page(seen: Seen) -> Iterator[str]:
    if seen.empty:
        yield f"{seen.empty} of {seen.pages} pages are empty"
    if seen.unanswered:
        yield f"{seen.unanswered} questions of {seen.pages + seen.unanswered} were not answered"
    if not seen.pages:
        yield "no page was served"


def _missing(seen: Seen) -> Iterator[str]:
    yield from (f"{name} on {subject}" for name, subject in seen.missing)


def _verdict(seen: Seen) -> Iterator[str]:
    if not seen.knows:
        yield "the watch does not name the slow rank"
    yield from (f"accused: {one}" for one in seen.accused)


def grown(before: Use, after: Use) -> Iterator[str]:
    """Yield the resources that a process holds too much of."""
    most = max(before.resident_mib * MOST_GROWTH, before.resident_mib + MOST_MORE_MIB)
    if after.resident_mib > most:
        yield f"{before.resident_mib:.0f} -> {after.resident_mib:.0f} MiB"
    if after.descriptors > before.descriptors + MOST_MORE_DESCRIPTORS:
        yield f"{before.descriptors} -> {after.descriptors} descriptors"
    if after.threads > before.threads + MOST_MORE_THREADS:
        yield f"{before.threads} -> {after.threads} threads"


def _use(seen: Seen) -> Iterator[str]:
    for name, before in seen.before.items():
        yield from (f"{name}: {what}" for what in grown(before, seen.after.get(name, before)))


INVARIANTS: Mapping[str, Callable[[Seen], Iterator[str]]] = {
    "trainer ends with 0": _exits,
    "trainer's files": _files,
    "no record lost": _lost,
    "no record repeated": _repeated,
    "page never empty": _page,
    "no alert lost": _missing,
    "no alert doubled": lambda seen: iter(seen.doubled),
    "verdict on another job": _verdict,
    "no process ends by itself": lambda seen: iter(seen.died),
    "memory, descriptors, threads": _use,
}
"""By name; each yields what violates it."""


FINAL = frozenset(
    {
        "trainer ends with 0",
        "trainer's files",
        "no record repeated",
        "page never empty",
        "no alert doubled",
        "no process ends by itself",
    }
)
"""Invariants that do not change by waiting longer."""


def violations(seen: Seen) -> Mapping[str, Sequence[str]]:
    """Return the violations of each invariant that does not hold."""
    all_ = {name: list(check(seen)) for name, check in INVARIANTS.items()}
    return {name: found for name, found in all_.items() if found}
