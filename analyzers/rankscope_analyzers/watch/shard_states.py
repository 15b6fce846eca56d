"""The states of watches that share jobs: if their number changes, each takes over its own jobs.

A state gives the number of watches at the time. A state with another number is read once more, and
those of all others are searched for jobs that are now this watch's. Its parts about the jobs of
others are kept for a while, for watches that have not read it yet.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from rankscope_agent.contract.shards import Shard, index_of
from rankscope_analyzers.watch.incident_log import ANNOUNCED, HANDED
from rankscope_analyzers.watch.series_state import INCIDENTS, SUMS
from rankscope_analyzers.watch.store import Kept, Part, Store, StoreError, UnreachableError

SHARD, PARKED = "shard", "parked"
"""Kinds of parts: the number of watches at the time, and parts about another watch's jobs."""

JOB = "job"
OF_JOBS = frozenset((INCIDENTS, SUMS, JOB))

PARKED_SECONDS = 3600.0
"""Seconds that parts about others' jobs are kept for them: they are started within minutes."""

Key = tuple[str, str]
"""Kind and job of a part."""


@dataclass(frozen=True, slots=True)
class Source:
    """The state of one watch.

    Args:
        index: of its shard.
        kept: its content.
    """

    index: int
    kept: Kept

    @property
    def total(self) -> int:
        """Return the number of watches when it was written; a watch without others wrote none."""
        found = [part.value for part in self.kept.parts if part.kind == SHARD]
        total = found[0].get("total") if found and isinstance(found[0], Mapping) else None
        return total if isinstance(total, int) and total > 0 else 1

    def has(self, job_id: str) -> bool:
        """Return True if a job belonged to this watch."""
        return index_of(job_id, self.total) == self.index


def handed_over(shard: Shard, sources: Sequence[Source]) -> tuple[Part, ...]:
    """Return the parts of states about the jobs of a shard, the most important first.

    Args:
        shard: the jobs.
        sources: the states of all watches.
    """
    parts: dict[Key, Part] = {}
    for source in sources:
        for part in source.kept.parts:
            one = _unparked(part) if part.kind == PARKED else part
            if one is None or one.kind not in OF_JOBS or not shard.has(one.name):
                continue
            key = one.kind, one.name
            if part.kind != PARKED and source.has(one.name):
                parts[key] = one  # of the one that followed it last
            else:
                parts.setdefault(key, one)
    order = {kind: place for place, kind in enumerate((INCIDENTS, SUMS, JOB))}
    return tuple(sorted(parts.values(), key=lambda part: order[part.kind]))


def announced_of(shard: Shard, sources: Iterable[Source]) -> list[Any]:
    """Return what incident logs recorded about the jobs of a shard, each incident's last change."""
    rows: dict[tuple[Any, Any], Any] = {}
    for source in sources:
        for part in source.kept.parts:
            if part.kind == ANNOUNCED:
                with suppress(TypeError, ValueError, KeyError, IndexError, AttributeError):
                    _take_announced(rows, shard, part.value["open"])
    return list(rows.values())


def _take_announced(
    rows: dict[tuple[Any, Any], Any], shard: Shard, announced: Iterable[Any]
) -> None:
    for row in announced:
        key = row[0], row[1]
        if shard.has(str(row[0])) and (key not in rows or rows[key][3] < row[3]):
            rows[key] = row


def _unparked(part: Part) -> Part | None:
    value = part.value
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        return None
    return Part(value["kind"], part.name, value.get("value"))


@dataclass(slots=True)
class ShardStore:
    """Saves the state of a shard, and takes over what the states of others hold about its jobs.

    Args:
        shard: of the jobs.
        own: where its state is saved.
        others: returns the states of other watches that can be read, with their numbers. Raises
            UnreachableError if one cannot be read now.
    """

    shard: Shard
    own: Store
    others: Callable[[], Iterator[Source]]
    _parked: tuple[Part, ...] = ()
    _parked_at: float = field(default=-math.inf)

    def read(self) -> Kept | None:
        """Return the saved state of this shard's jobs.

        Raises:
            UnreachableError: a state cannot be read now.
            StoreError: this watch's state is not such a document.
        """
        kept = self.own.read()
        mine = None if kept is None else Source(self.shard.index, kept)
        if kept is not None:
            self._park(kept)
        if mine is not None and mine.total == self.shard.total and _is_marked(kept):
            return replace(mine.kept, parts=tuple(one for one in mine.kept.parts if _own(one)))
        sources = [*self.others(), *([mine] if mine else [])]
        if not sources:
            return None
        rest = [one for one in kept.parts if _own(one) and one.kind not in OF_JOBS] if kept else []
        if not any(one.kind == ANNOUNCED for one in rest):
            rest.append(Part(ANNOUNCED, "", {"sequence": 0, "open": []}))
        rest = [_with_announced(one, self.shard, sources) for one in rest]
        saved = kept.saved_unix_seconds if kept else sources[0].kept.saved_unix_seconds
        problems = kept.problems if kept else ()
        return Kept(saved, (*rest, *handed_over(self.shard, sources)), problems)

    def write(self, parts: Iterable[Part], now: float) -> int:
        """Save some parts, and for a while those of others' jobs; return how many were left out.

        Raises:
            StoreError: they cannot be saved.
        """
        marker = Part(SHARD, "", {"total": self.shard.total})
        if time.monotonic() - self._parked_at > PARKED_SECONDS:
            self._parked = ()
        return self.own.write([marker, *parts, *self._parked], now)

    def _park(self, kept: Kept) -> None:
        """Remember the parts about jobs that are not this shard's."""
        self._parked_at = time.monotonic()
        self._parked = tuple(
            one if one.kind == PARKED else _parked(one)
            for one in kept.parts
            if one.kind in {*OF_JOBS, PARKED} and not self.shard.has(one.name)
        )


def _parked(part: Part) -> Part:
    return Part(PARKED, part.name, {"kind": part.kind, "value": part.value})


def _own(part: Part) -> bool:
    return part.kind not in {SHARD, PARKED}


def _is_marked(kept: Kept | None) -> bool:
    return kept is not None and any(part.kind == SHARD for part in kept.parts)


def _with_announced(part: Part, shard: Shard, sources: Sequence[Source]) -> Part:
    if part.kind != ANNOUNCED or not isinstance(part.value, Mapping):
        return part
    return Part(ANNOUNCED, "", {**part.value, HANDED: announced_of(shard, sources)})


def states_of(stores: Iterable[tuple[int, Store]]) -> Iterator[Source]:
    """Yield the states that can be read: of stores with the number of their shard.

    Raises:
        UnreachableError: one cannot be read now.
    """
    for index, store in stores:
        kept = _readable(store)
        if kept is not None:
            yield Source(index, kept)


def _readable(store: Store) -> Kept | None:
    try:
        return store.read()
    except UnreachableError:
        raise
    except StoreError:
        return None
