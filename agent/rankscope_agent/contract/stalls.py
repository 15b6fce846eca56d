"""Where a rank stands that ends no steps, and the JSON in which agents give it.

The collectives that it has launched come from PyTorch's Flight Recorder, its stack from its own
interpreter, its state from the kernel. All but the last is the word of an untrusted process.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rankscope_agent.contract.flight_dump import MAX_FRAMES, MAX_TEXT, Entry, FlightDump, Frame
from rankscope_agent.contract.job_names import is_job_id
from rankscope_agent.contract.printable import printable

KEPT_CALLS = 8
"""Newest collectives that are kept of a process group: ranks of a job that stands still are a few
collectives apart, as frameworks launch no more than that ahead."""

MAX_PENDING = 32
"""Collectives of a group that are kept as they are not done, the oldest first."""

MAX_GROUPS = 64
MAX_WAITED_CALLS = KEPT_CALLS + MAX_PENDING
MAX_MEMBERS = 200_000
MAX_RANK = 1 << 24


@dataclass(frozen=True, slots=True)
class Call:
    """One collective or message as its rank has it.

    Args:
        operation: such as `gloo:all_reduce`.
        sequence: number of the collective in its group, of a message among messages.
        message: it is a message.
        shape: sizes and types of its tensors, as text: `10xFloat`.
        done: the rank has it behind itself.
    """

    operation: str
    sequence: int
    message: bool
    shape: str
    created_unix_seconds: float
    done: bool


@dataclass(frozen=True, slots=True)
class GroupCalls:
    """What a rank has launched in one process group.

    Args:
        name: the same on all of the group's ranks.
        description: what it is for, such as `default_pg`.
        ranks: of the group, where the recorder tells.
        enqueued: number of the newest collective, 0 without any.
        calls: the newest, and those that are not done; in the order of their launch.
    """

    name: str
    description: str
    ranks: tuple[int, ...]
    enqueued: int
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class RankStall:
    """A rank that has ended no step for some time.

    Args:
        taken_unix_seconds: when it was looked at, by its node's clock.
        quiet_seconds: how long before that its newest step had ended, or its ring was made.
        stepped: it had ended a step.
        state: of its process, as in /proc/PID/stat; empty where it is not seen.
        cpu_seconds: processor time that its process had used.
        groups: what it has launched; empty where `recorder` says why.
        recorder: why there is no Flight Recorder; empty where there is one.
        stack: of its main thread, innermost first; empty where `no_stack` says why.
        cpu_share: of a core that its process used, or one of its threads was ready to use, while it
            was looked at; None where not seen.
        span_ended_unix_seconds: when its newest checkpoint, evaluation or compilation ended, None
            where none has.
    """

    job_id: str
    rank: int
    world_size: int | None
    taken_unix_seconds: float
    quiet_seconds: float
    stepped: bool
    state: str
    cpu_seconds: float | None
    groups: tuple[GroupCalls, ...]
    recorder: str
    stack: tuple[Frame, ...]
    no_stack: str
    cpu_share: float | None = None
    span_ended_unix_seconds: float | None = None


def groups_of(dump: FlightDump) -> tuple[GroupCalls, ...]:
    """Return what a dump says of the process groups, of each the newest and the undone calls."""
    entries: dict[str, list[Entry]] = {}
    for entry in dump.entries:
        entries.setdefault(entry.group, []).append(entry)
    names = sorted(entries, key=lambda name: -entries[name][-1].created_ns)[:MAX_GROUPS]
    return tuple(_group(name, entries[name], dump.groups.get(name, ())) for name in sorted(names))


def _group(name: str, entries: Sequence[Entry], ranks: Sequence[int]) -> GroupCalls:
    undone = [entry for entry in entries if not _done(entry)][:MAX_PENDING]
    newest = [entry for entry in entries[-KEPT_CALLS:] if entry not in undone]
    kept = sorted((*undone, *newest), key=lambda entry: entry.record_id)
    return GroupCalls(
        name=name,
        description=entries[-1].description,
        ranks=tuple(ranks[:MAX_MEMBERS]),
        enqueued=max((entry.sequence for entry in entries if not entry.is_message), default=0),
        calls=tuple(map(_call, kept)),
    )


def _done(entry: Entry) -> bool:
    """Return True if a rank waits for a collective no longer; gloo never says "completed"."""
    return entry.retired or entry.state == "completed"


def _call(entry: Entry) -> Call:
    return Call(
        operation=entry.operation,
        sequence=entry.message_sequence if entry.is_message else entry.sequence,
        message=entry.is_message,
        shape=_shape(entry)[:MAX_TEXT],
        created_unix_seconds=entry.created_ns / 1e9,
        done=_done(entry),
    )


def _shape(entry: Entry) -> str:
    sizes = ("x".join(map(str, shape)) or "1" for shape in entry.input_sizes)
    return ", ".join(f"{size} {kind}" for size, kind in zip(sizes, entry.input_types, strict=False))


def as_object(stall: RankStall) -> dict[str, Any]:
    """Return a stall as an agent sends it."""
    return asdict(stall)


def readable(kept: Iterable[Mapping[str, Any]]) -> list[RankStall]:
    """Return those stalls that can be read: one that cannot be costs no other rank its own."""
    found = []
    for one in kept:
        with contextlib.suppress(LookupError, TypeError, ValueError):
            found.append(read(one))
    return found


def read(kept: Mapping[str, Any]) -> RankStall:
    """Read a stall as an agent sent it.

    Raises:
        LookupError, TypeError, ValueError: a member is missing, or cannot be true.
    """
    job_id, state = str(kept["job_id"]), str(kept["state"])
    if not is_job_id(job_id) or len(state) > 1:
        raise ValueError("neither a job's name nor a state of a process")
    size = kept["world_size"]
    return RankStall(
        job_id=job_id,
        rank=_count(kept["rank"], MAX_RANK),
        world_size=None if size is None else _count(size, MAX_RANK),
        taken_unix_seconds=_seconds(kept["taken_unix_seconds"]),
        quiet_seconds=_seconds(kept["quiet_seconds"]),
        stepped=kept["stepped"] is True,
        state=_text(state),
        cpu_seconds=_seconds_or_none(kept["cpu_seconds"]),
        groups=tuple(_read_group(one) for one in kept["groups"][:MAX_GROUPS]),
        recorder=_text(kept["recorder"]),
        stack=tuple(_read_frame(one) for one in kept["stack"][:MAX_FRAMES]),
        no_stack=_text(kept["no_stack"]),
        # Older agents leave them out.
        cpu_share=_seconds_or_none(kept.get("cpu_share")),
        span_ended_unix_seconds=_seconds_or_none(kept.get("span_ended_unix_seconds")),
    )


def _read_group(kept: Mapping[str, Any]) -> GroupCalls:
    return GroupCalls(
        name=_text(kept["name"]),
        description=_text(kept["description"]),
        ranks=tuple(_count(one, MAX_RANK) for one in kept["ranks"][:MAX_MEMBERS]),
        enqueued=_count(kept["enqueued"], 1 << 63),
        calls=tuple(_read_call(one) for one in kept["calls"][:MAX_WAITED_CALLS]),
    )


def _read_call(kept: Mapping[str, Any]) -> Call:
    return Call(
        operation=_text(kept["operation"]),
        sequence=_count(kept["sequence"], 1 << 63),
        message=kept["message"] is True,
        shape=_text(kept["shape"]),
        created_unix_seconds=_seconds(kept["created_unix_seconds"]),
        done=kept["done"] is True,
    )


def _read_frame(kept: Mapping[str, Any]) -> Frame:
    return Frame(_text(kept["function"]), _text(kept["file"]), _count(kept["line"], 1 << 31))


def _count(value: Any, limit: int) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{str(value)[:40]} is no number from 0 to {limit}")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:40]} is no time")
    return float(value)


def _seconds_or_none(value: Any) -> float | None:
    return None if value is None else _seconds(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return printable(value[-MAX_TEXT:])
