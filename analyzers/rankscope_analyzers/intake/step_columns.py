"""Reads the binary form of an agent's step records, without trusting it: pure.

The form is that of `rankscope_agent.contract.step_blocks`. Nothing of a response is used before its
lengths are checked; numbers are read in place, without a copy of each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from rankscope_agent.contract import step_blocks as form
from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.intake import left_out
from rankscope_analyzers.intake.left_out import LeftOut
from rankscope_analyzers.intake.unread_counts import NO_JOB, Unread, job_named
from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.steps.records import MAXIMUM_RANK

MOST_HEAD_BYTES = 4 << 20
"""Rings: a thousand, each with a line of half a kilobyte."""

MOST_COLUMNS = 64
MOST_ROWS = 1 << 20
"""Twice what an agent sends at once."""

LARGEST_NUMBER = 1 << 62
"""A ring with a larger count would be older than the universe."""

NEEDED = frozenset((form.RING_INDEX, form.TIMING_INDEX, *form.RECORD_NUMBERS[:3]))
"""Columns without which a row has no rank, no step or no time."""

_NAME = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring, from the head of a response.

    Args:
        name: of its file.
        whole: True if its records begin at `since`: it is new, or its cursor was invalid.
        rank: what agents report of a rank, as in /api/v1/ranks.
    """

    name: str
    whole: bool
    rank: Mapping[str, Any]

    @property
    def job_id(self) -> str:
        """Name of the job."""
        return str(self.rank["job_id"])


@dataclass(frozen=True, slots=True)
class UnreadableRing:
    """A ring from the head of a response whose rank, job or node is none: its rows are skipped.

    Args:
        name: of its file.
        job_id: its job, empty if that is unreadable.
        fault: what is wrong with it.
    """

    name: str
    job_id: str
    fault: str


@dataclass(frozen=True, slots=True)
class Head:
    """What precedes the records in a response: mostly the same as in the response before.

    Args:
        text: that it was parsed from.
        node: that the agent claims to be on.
        columns: names of a row's numbers.
        timing_sources: names that `timing` indexes.
        rings: all of the agent's that can be read, with or without new records.
        sent: all of the agent's; what numbers of rows and cursors refer to.
    """

    text: bytes
    node: str
    columns: tuple[str, ...]
    timing_sources: tuple[str, ...]
    rings: tuple[Ring, ...]
    sent: tuple[Ring | UnreadableRing, ...] = ()


@dataclass(frozen=True, slots=True)
class StepColumns:
    """The records of one response.

    Args:
        head: what describes all of them.
        next_numbers: of the record to request next, for each ring.
        ring: (n,) index of each record's ring.
        numbers: (n,) columns by name; NaN where a value is unknown.
        truncated: True if there is more.
        left_out: ranks of which the agent has older records that did not fit.
        in_blocks: True if the agent sends columns.
        unread: rows that could not be read.
        unread_next: of the record to request next, for each ring that cannot be read, by name.
    """

    head: Head
    next_numbers: tuple[int, ...]
    ring: Integers
    numbers: Mapping[str, Floats]
    truncated: bool
    left_out: LeftOut = field(default_factory=dict)
    in_blocks: bool = True
    unread: Unread = field(default_factory=dict)
    unread_next: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.ring)

    @property
    def rings(self) -> tuple[Ring, ...]:
        """Return the rings of the head."""
        return self.head.rings

    @property
    def timing_sources(self) -> tuple[str, ...]:
        """Return the timing sources that the column `timing` indexes."""
        return self.head.timing_sources


def parsed(data: bytes, before: Head | None = None) -> StepColumns:
    """Return the content of a response.

    Args:
        data: the response.
        before: the same agent's previous head, which is not parsed again if it is the same.

    Raises:
        ValueError: it is not such a response, was cut off, or contradicts itself.
    """
    text, at = _head_text(data)
    head = before if before is not None and before.text == text else _head(text)
    table, tail = _table(data, at, len(head.columns))
    numbers = dict(zip(head.columns, table, strict=True))
    ring, unread = _places(numbers.pop(form.RING_INDEX), head.sent)
    if unread:
        numbers = {name: one[ring >= 0] for name, one in numbers.items()}
    counts = _counts(_list(tail, "next"), len(head.sent))
    numbered = list(zip(head.sent, counts, strict=True))
    return StepColumns(
        head=head,
        next_numbers=tuple(number for one, number in numbered if isinstance(one, Ring)),
        ring=ring[ring >= 0],
        numbers=numbers,
        truncated=bool(tail.get("truncated")),
        left_out=left_out.read(tail.get("left_out")),
        unread=unread,
        unread_next={one.name: number for one, number in numbered if not isinstance(one, Ring)},
    )


def _head_text(data: bytes) -> tuple[bytes, int]:
    if len(data) < form.HEAD.size:
        raise ValueError(f"{len(data)} bytes are too short for a response")
    magic, version, _, length = form.HEAD.unpack_from(data)
    if magic != form.MAGIC:
        raise ValueError(f"it begins with {magic!r}")
    if version != form.VERSION:
        raise ValueError(f"step records are of version {version}, expected {form.VERSION}")
    end = form.HEAD.size + length
    if end > len(data):
        raise ValueError(f"a head of {length} bytes does not fit into what was sent")
    return data[form.HEAD.size : end], end


def _head(text: bytes) -> Head:
    head = _object(text, 0, len(text))
    columns = _names(head, "columns")
    if not set(columns) >= NEEDED or len(columns) > MOST_COLUMNS:
        raise ValueError(f"columns {sorted(NEEDED - set(columns))} are missing of {len(columns)}")
    sent = tuple(map(_ring, _list(head, "rings")))
    if len({ring.name for ring in sent}) < len(sent):
        raise ValueError("a ring occurs twice")
    rings = tuple(ring for ring in sent if isinstance(ring, Ring))
    if not rings and (faults := [ring.fault for ring in sent if not isinstance(ring, Ring)]):
        raise ValueError(faults[0])
    sources = _names(head, "timing_sources")
    return Head(text, str(head.get("node", "")), columns, sources, rings, sent)


def _object(data: bytes, at: int, length: int) -> Mapping[str, Any]:
    if length > MOST_HEAD_BYTES or at + length > len(data):
        raise ValueError(f"an object of {length} bytes does not fit into what was sent")
    found = untrusted_json.read(data[at : at + length])
    if not isinstance(found, dict):
        raise ValueError("an object is not a JSON object")
    return found


def _table(data: bytes, at: int, columns: int) -> tuple[Floats, Mapping[str, Any]]:
    """Return (columns, n) numbers of all blocks, and the tail after them."""
    blocks: list[Floats] = []
    total = 0
    while True:
        if at + form.BLOCK.size > len(data):
            raise ValueError("it was cut off: its tail is missing")
        rows, length = form.BLOCK.unpack_from(data, at)
        at += form.BLOCK.size
        if not rows:
            tail = _object(data, at, length)
            if at + length != len(data):
                raise ValueError(f"{len(data) - at - length} bytes follow its end")
            break
        total += rows
        if total > MOST_ROWS or at + rows * columns * 8 > len(data):
            raise ValueError(f"a block of {rows} rows does not fit into what was sent")
        block = np.frombuffer(data, "<f8", rows * columns, at).reshape(columns, rows)
        blocks.append(block.astype(np.float64, copy=False))
        at += rows * columns * 8
    return np.concatenate(blocks, axis=1) if blocks else np.empty((columns, 0)), tail


def _places(
    values: Floats, sent: Sequence[Ring | UnreadableRing]
) -> tuple[Integers, Mapping[str, int]]:
    """Return the place of each row's ring among those that can be read, else -1; and their count.

    Rows of which nobody can say what ring they are of count for every job.
    """
    known = (values >= 0) & (values < len(sent)) & (values == np.floor(values))
    readable = np.array([isinstance(ring, Ring) for ring in sent], dtype=np.bool_)
    places = np.append(np.where(readable, np.cumsum(readable) - 1, -1), -1)
    index = np.where(known, values, len(sent)).astype(np.int64)
    jobs = [NO_JOB if isinstance(ring, Ring) else ring.job_id for ring in sent]
    lost = Counter((*jobs, NO_JOB)[one] for one in index[places[index] < 0].tolist())
    return places[index], dict(lost)


def _list(found: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = found.get(name)
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")
    return value


def _names(found: Mapping[str, Any], name: str) -> tuple[str, ...]:
    names = _list(found, name)
    if {type(one) for one in names} - {str} or len(set(names)) < len(names):
        raise ValueError(f"{name} are not unique names")
    return tuple(names)


def _counts(values: Sequence[Any], rings: int) -> tuple[int, ...]:
    if len(values) != rings or not all(_is_count(one, LARGEST_NUMBER) for one in values):
        raise ValueError(f"no cursor for each of {rings} rings")
    return tuple(values)


def _ring(head: Any) -> Ring | UnreadableRing:
    if not isinstance(head, dict):
        raise ValueError("a ring is not an object")
    name = head.get("ring")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("a ring has no name")
    try:
        _check_rank(head)
    except ValueError as error:
        return UnreadableRing(name, job_named(head.get("job_id")), str(error))
    return Ring(name, bool(head.get("whole")), head)


def _check_rank(head: Mapping[str, Any]) -> None:
    job_id, rank, node = (head.get(one) for one in ("job_id", "rank", "node"))
    if not isinstance(job_id, str) or not isinstance(node, str):
        raise ValueError("the name of a job or of a node is not a text")
    for text in chain((job_id, node), (one for one in head.values() if isinstance(one, str))):
        text.encode()  # half a surrogate pair, which JSON allows, cannot be stored in a table
    if not _is_count(rank, MAXIMUM_RANK):
        raise ValueError(f"a ring of job {job_id[:80]!a} has no rank")


def _is_count(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most
