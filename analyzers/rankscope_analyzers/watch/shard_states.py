"""The states of watches that share jobs: if their number changes, each takes over its own jobs.

A state gives the number of watches at the time, and until when its watch was one of other numbers.
A state with another number is read once more, and those of all others are searched for jobs that
are now this watch's; so is one of before fewer watches followed its jobs. Its parts about the jobs
of others are kept for a while, for watches that have not read it yet.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from rankscope_agent.contract.shards import MOST_SHARDS, Shard, index_of
from rankscope_analyzers.watch.incident_log import ANNOUNCED, HANDED, SUPERSEDED
from rankscope_analyzers.watch.series_state import INCIDENTS, SUMS
from rankscope_analyzers.watch.store import Kept, Part, Store, StoreError, UnreachableError

SHARD, PARKED = "shard", "parked"
"""Kinds of parts: the number of watches at the time, and parts about another watch's jobs."""

BEFORE = "before"
"""Member of the marker: until when the watch followed jobs as one of other numbers of watches."""

JOB = "job"
OF_JOBS = frozenset((INCIDENTS, SUMS, JOB))

FIRST = 2
"""Other states that are looked at when starting: watches with the smallest numbers run whatever the
number of watches is, and have noted it."""

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
        total = self._marker.get("total")
        return total if isinstance(total, int) and total > 0 else 1

    @property
    def followed(self) -> Mapping[int, float]:
        """Return until when the watch followed jobs, by the number of watches at that time."""
        before: dict[int, float] = {}
        with suppress(TypeError, ValueError):
            for total, until in self._marker.get(BEFORE, ()):
                if isinstance(total, int) and 0 < total <= MOST_SHARDS:
                    before[total] = float(until)
        return {**before, self.total: self.kept.saved_unix_seconds}

    def until(self, job_id: str) -> float:
        """Return until when it followed a job, minus infinity if it never did."""
        times = (
            until for total, until in self.followed.items() if index_of(job_id, total) == self.index
        )
        return max(times, default=-math.inf)

    @property
    def _marker(self) -> Mapping[str, Any]:
        found = [part.value for part in self.kept.parts if part.kind == SHARD]
        return found[0] if found and isinstance(found[0], Mapping) else {}


class Sources:
    """The states of all watches: of each job, that of the watch counts that followed it last.

    Its own old state would otherwise come back with a watch that is started again, after fewer
    watches followed its jobs in the meantime.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.all = sources
        self._last: dict[str, float] = {}

    def are_last(self, job_id: str, until: float) -> bool:
        """Return True for what was written of a job when a watch last followed it."""
        if job_id not in self._last:
            self._last[job_id] = max(one.until(job_id) for one in self.all)
        return until >= self._last[job_id]


def handed_over(shard: Shard, sources: Sources) -> tuple[Part, ...]:
    """Return the parts of states about the jobs of a shard, the most important first.

    Args:
        shard: the jobs.
        sources: the states of all watches.
    """
    parts: dict[Key, Part] = {}
    for source in sources.all:
        for part in source.kept.parts:
            one = _unparked(part) if part.kind == PARKED else part
            if one is None or one.kind not in OF_JOBS or not shard.has(one.name):
                continue
            until = _saved(part) if part.kind == PARKED else source.until(one.name)
            if sources.are_last(one.name, until):
                parts[one.kind, one.name] = one
    order = {kind: place for place, kind in enumerate((INCIDENTS, SUMS, JOB))}
    return tuple(sorted(parts.values(), key=lambda part: order[part.kind]))


def announced_of(shard: Shard, sources: Sources) -> list[Any]:
    """Return what incident logs recorded about the jobs of a shard, each incident's last change."""
    rows: dict[tuple[Any, Any], Any] = {}
    for source in sources.all:
        for part in source.kept.parts:
            if part.kind == ANNOUNCED:
                with suppress(TypeError, ValueError, KeyError, IndexError, AttributeError):
                    _take_announced(rows, shard, last_rows(part.value["open"], source, sources))
    return list(rows.values())


def last_rows(announced: Iterable[Any], source: Source, sources: Sources) -> list[Any]:
    """Return the rows of a state about jobs that no other watch followed later."""
    return [row for row in announced if sources.are_last(str(row[0]), source.until(str(row[0])))]


def _take_announced(
    rows: dict[tuple[Any, Any], Any], shard: Shard, announced: Iterable[Any]
) -> None:
    for row in announced:
        key = row[0], row[1]
        if shard.has(str(row[0])) and (key not in rows or rows[key][3] < row[3]):
            rows[key] = row


def _saved(parked: Part) -> float:
    """Return when a part that is kept for another watch was last written by its own."""
    saved = parked.value.get("saved")
    return float(saved) if isinstance(saved, int | float) else -math.inf


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
    _before: Mapping[int, float] = field(default_factory=dict)

    def read(self) -> Kept | None:
        """Return the saved state of this shard's jobs.

        Raises:
            UnreachableError: a state cannot be read now.
            StoreError: this watch's state is not such a document.
        """
        kept = self.own.read()
        if kept is None:
            return self._taken_over(None, ())
        mine = Source(self.shard.index, kept)
        self._park(kept)
        self._before = {
            total: until for total, until in mine.followed.items() if total != self.shard.total
        }
        unchanged = mine.total == self.shard.total and _is_marked(kept)
        superseded = self._is_superseded(kept)
        own = [one for one in kept.parts if _own(one)]
        if unchanged and not superseded:
            return replace(kept, parts=tuple(own))
        rest = [one for one in own if one.kind not in OF_JOBS]
        return self._taken_over(mine, [_without_file(one) for one in rest] if superseded else rest)

    def _is_superseded(self, kept: Kept) -> bool:
        """Return True if watches without this one followed the jobs since this was written."""
        return any(
            until > kept.saved_unix_seconds
            for other in islice(self.others(), FIRST)
            for total, until in other.followed.items()
            if total <= self.shard.index or not _is_marked(other.kept)
        )

    def _taken_over(self, mine: Source | None, rest: Sequence[Part]) -> Kept | None:
        """Return this watch's own state, with what those of all watches have about its jobs."""
        sources = Sources([*self.others(), *([mine] if mine else [])])
        if not sources.all:
            return None
        if not any(one.kind == ANNOUNCED for one in rest):
            rest = [*rest, Part(ANNOUNCED, "", {"sequence": 0, "open": []})]
        rest = [_with_announced(one, self.shard, mine, sources) for one in rest]
        kept = mine.kept if mine else None
        saved = kept.saved_unix_seconds if kept else sources.all[0].kept.saved_unix_seconds
        problems = kept.problems if kept else ()
        return Kept(saved, (*rest, *handed_over(self.shard, sources)), problems)

    def write(self, parts: Iterable[Part], now: float) -> int:
        """Save some parts, and for a while those of others' jobs; return how many were left out.

        Raises:
            StoreError: they cannot be saved.
        """
        before = [[total, until] for total, until in self._before.items()]
        marker = Part(SHARD, "", {"total": self.shard.total, BEFORE: before})
        if time.monotonic() - self._parked_at > PARKED_SECONDS:
            self._parked = ()
        return self.own.write([marker, *parts, *self._parked], now)

    def _park(self, kept: Kept) -> None:
        """Remember the parts about jobs that are not this shard's."""
        self._parked_at = time.monotonic()
        self._parked = tuple(
            one if one.kind == PARKED else _parked(one, kept.saved_unix_seconds)
            for one in kept.parts
            if one.kind in {*OF_JOBS, PARKED} and not self.shard.has(one.name)
        )


def _parked(part: Part, saved: float) -> Part:
    return Part(PARKED, part.name, {"kind": part.kind, "value": part.value, "saved": saved})


def _own(part: Part) -> bool:
    return part.kind not in {SHARD, PARKED}


def _is_marked(kept: Kept | None) -> bool:
    return kept is not None and any(part.kind == SHARD for part in kept.parts)


def _with_announced(part: Part, shard: Shard, mine: Source | None, sources: Sources) -> Part:
    if part.kind != ANNOUNCED or not isinstance(part.value, Mapping):
        return part
    value = {**part.value, HANDED: announced_of(shard, sources)}
    if mine is not None:
        with suppress(TypeError, ValueError, KeyError, IndexError, AttributeError):
            value["open"] = last_rows(part.value["open"], mine, sources)
    return Part(ANNOUNCED, "", value)


def _without_file(part: Part) -> Part:
    """Return an own part so that what its log's file has as open counts no longer."""
    if part.kind != ANNOUNCED or not isinstance(part.value, Mapping):
        return part
    return Part(ANNOUNCED, "", {**part.value, SUPERSEDED: part.value.get("sequence", 0)})


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
