"""The state of a rank that ends no steps, and the JSON in which agents report it.

Its launched collectives come from PyTorch's Flight Recorder, its stack from its own interpreter,
its state from the kernel. All but the last are the word of an untrusted process.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rankscope_agent.contract.flight_dump import MAX_FRAMES, MAX_TEXT, Entry, FlightDump, Frame
from rankscope_agent.contract.job_names import is_job_id
from rankscope_agent.contract.printable import printable

KEPT_CALLS = 8
"""Newest collectives kept per process group: the ranks of a stalled job are at most a few
collectives apart, because frameworks launch no further ahead."""

MAX_PENDING = 32
"""Unfinished collectives kept per group, oldest first."""

COALESCED = "coalesced"
"""End of the name of the entry that ends a batch, such as those of batch_isend_irecv, or of the
broadcasts (`nccl:ALLGATHER_coalesced`) of an all_gather of different sizes. It alone has a state:
those of the batch's own operations are "scheduled" for ever (ProcessGroupNCCL.cpp, pointToPoint,
collective and endCoalescing)."""

MAX_GROUPS = 64
MAX_WAITED_CALLS = KEPT_CALLS + MAX_PENDING
MAX_MEMBERS = 200_000
MAX_RANK = 1 << 24


@dataclass(frozen=True, slots=True)
class Call:
    """One collective or message from the point of view of its rank.

    Args:
        operation: such as `gloo:all_reduce`.
        sequence: number of the collective in its group, or of the message among messages.
        message: whether it is a message.
        shape: sizes and types of its tensors, as text: `10xFloat`.
        done: whether the rank has completed it.
        started: whether its GPU is known to have begun it (`TORCH_NCCL_ENABLE_TIMING=1`).
    """

    operation: str
    sequence: int
    message: bool
    shape: str
    created_unix_seconds: float
    done: bool
    started: bool = False


@dataclass(frozen=True, slots=True)
class GroupCalls:
    """What a rank has launched in one process group.

    Args:
        name: the same on all of the group's ranks.
        description: the purpose of the group, such as `default_pg`.
        ranks: of the group, if the recorder lists them.
        enqueued: number of the newest collective; 0 if there is none.
        calls: the newest ones and the unfinished ones, in order of launch.
    """

    name: str
    description: str
    ranks: tuple[int, ...]
    enqueued: int
    calls: tuple[Call, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Return name and backend: a group of two backends counts the collectives of each."""
        backend, named, _ = self.calls[0].operation.partition(":") if self.calls else ("", "", "")
        return self.name, backend if named else ""


@dataclass(frozen=True, slots=True)
class RankStall:
    """A rank that has not ended a step for some time.

    Args:
        taken_unix_seconds: when its state was read, by its node's clock.
        quiet_seconds: how long before that its newest step ended or, without steps, its ring was
            created.
        stepped: whether it has ended any step.
        state: of its process, as in /proc/PID/stat; empty if the process is not visible.
        cpu_seconds: processor time that its process has used.
        groups: what it has launched; empty if `recorder` says why.
        recorder: why there is no data from the Flight Recorder; empty if there is.
        stack: of its training thread, innermost frame first; empty if `no_stack` says why.
        cpu_share: share of a core that its process used, or that one of its threads was runnable
            for, while its state was read; None if not visible.
        span_ended_unix_seconds: when its newest checkpoint, evaluation or compilation ended; None
            if none has.
        asked: whether its worker server was queried; False if there was no time for it, so that
            nothing follows from its silence.
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
    asked: bool = True


def groups_of(dump: FlightDump) -> tuple[GroupCalls, ...]:
    """Return the newest and the unfinished calls of each process group of a dump."""
    entries: dict[str, list[Entry]] = {}
    for entry in dump.entries:
        entries.setdefault(entry.group, []).append(entry)
    names = sorted(entries, key=lambda name: -entries[name][-1].created_ns)[:MAX_GROUPS]
    return tuple(_group(name, entries[name], dump.groups.get(name, ())) for name in sorted(names))


def _newest(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return a group's entries since it was last made: one of the same name begins anew at 1.

    The recorder outlives a group that is destroyed, as by a restart within the processes.
    """
    highest: dict[str, int] = {}
    first = 0
    for at, entry in enumerate(entries):
        backend = entry.operation.partition(":")[0]
        if not entry.is_message:
            if entry.sequence == 1 < highest.get(backend, 0):
                first, highest = at, {}
            highest[backend] = entry.sequence
    return entries[first:]


def _group(name: str, entries: Sequence[Entry], ranks: Sequence[int]) -> GroupCalls:
    entries = _newest(entries)
    batches = {_number(entry): entry for entry in entries if entry.operation.endswith(COALESCED)}

    def _done(entry: Entry) -> bool:
        return _is_done(batches.get(_number(entry), entry))

    undone = [entry for entry in entries if not _done(entry)][:MAX_PENDING]
    newest = [entry for entry in entries[-KEPT_CALLS:] if entry not in undone]
    kept = sorted((*undone, *newest), key=lambda entry: entry.record_id)
    return GroupCalls(
        name=name,
        description=entries[-1].description,
        ranks=tuple(ranks[:MAX_MEMBERS]),
        enqueued=max((entry.sequence for entry in entries if not entry.is_message), default=0),
        calls=tuple(_call(entry, done=_done(entry)) for entry in kept),
    )


def _number(entry: Entry) -> tuple[bool, int]:
    """Return what the operations of a batch have in common, within their group."""
    return entry.is_message, entry.message_sequence if entry.is_message else entry.sequence


def _is_done(entry: Entry) -> bool:
    """Return True if a rank no longer waits for a collective; gloo never reports "completed"."""
    return entry.retired or entry.state == "completed"


def _call(entry: Entry, *, done: bool) -> Call:
    return Call(
        operation=entry.operation,
        sequence=_number(entry)[1],
        message=entry.is_message,
        shape=_shape(entry)[:MAX_TEXT],
        created_unix_seconds=entry.created_ns / 1e9,
        done=done,
        started=entry.state == "started" or entry.started_ns is not None,
    )


def _shape(entry: Entry) -> str:
    sizes = ("x".join(map(str, shape)) or "1" for shape in entry.input_sizes)
    return ", ".join(f"{size} {kind}" for size, kind in zip(sizes, entry.input_types, strict=False))


def as_object(stall: RankStall) -> dict[str, Any]:
    """Return a stall in the form that agents send."""
    return asdict(stall)


def readable(kept: Iterable[Mapping[str, Any]]) -> list[RankStall]:
    """Return those stalls that can be read: one that cannot be costs no other rank its own."""
    found = []
    for one in kept:
        with contextlib.suppress(LookupError, TypeError, ValueError):
            found.append(read(one))
    return found


def sharing(stall: RankStall, lists: dict[tuple[int, ...], tuple[int, ...]]) -> RankStall:
    """Return a stall that shares its lists of ranks with those before it.

    Each rank of a job lists all of them: separate lists of 4,096 ranks would take 600 MB.

    Args:
        stall: one of a job.
        lists: those of earlier stalls, which are added to.
    """
    groups = (replace(one, ranks=lists.setdefault(one.ranks, one.ranks)) for one in stall.groups)
    return replace(stall, groups=tuple(groups))


def read(kept: Mapping[str, Any]) -> RankStall:
    """Read a stall in the form that agents send.

    Raises:
        LookupError, TypeError, ValueError: a member is missing or implausible.
    """
    job_id, state = str(kept["job_id"]), str(kept["state"])
    if not is_job_id(job_id) or len(state) > 1:
        raise ValueError("invalid job name or process state")
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
        # Older agents leave these out.
        cpu_share=_seconds_or_none(kept.get("cpu_share")),
        span_ended_unix_seconds=_seconds_or_none(kept.get("span_ended_unix_seconds")),
        asked=kept.get("asked") is not False,
    )


def _read_group(kept: Mapping[str, Any]) -> GroupCalls:
    return GroupCalls(
        name=_text(kept["name"]),
        description=_text(kept["description"]),
        ranks=_members(kept["ranks"]),
        enqueued=_count(kept["enqueued"], 1 << 63),
        calls=tuple(_read_call(one) for one in kept["calls"][:MAX_WAITED_CALLS]),
    )


def _members(value: Any) -> tuple[int, ...]:
    """Read the ranks of a group: of each rank of a large job as many as the job has."""
    if not isinstance(value, list | tuple):
        raise TypeError("no list of ranks")
    ranks = tuple(value[:MAX_MEMBERS])
    if ranks and (set(map(type, ranks)) != {int} or min(ranks) < 0 or max(ranks) >= MAX_RANK):
        raise ValueError("invalid ranks of a group")
    return ranks


def _read_call(kept: Mapping[str, Any]) -> Call:
    return Call(
        operation=_text(kept["operation"]),
        sequence=_count(kept["sequence"], 1 << 63),
        message=kept["message"] is True,
        shape=_text(kept["shape"]),
        created_unix_seconds=_seconds(kept["created_unix_seconds"]),
        done=kept["done"] is True,
        started=kept.get("started") is True,
    )


def _read_frame(kept: Mapping[str, Any]) -> Frame:
    return Frame(_text(kept["function"]), _text(kept["file"]), _count(kept["line"], 1 << 31))


def _count(value: Any, limit: int) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{str(value)[:40]} is not a number from 0 to {limit}")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:40]} is not a time")
    return float(value)


def _seconds_or_none(value: Any) -> float | None:
    return None if value is None else _seconds(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return printable(value[-MAX_TEXT:])
