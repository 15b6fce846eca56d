"""Dumps of PyTorch's Flight Recorder: JSON or pickle of an untrusted writer, checked.

torch writes pickles where a watchdog dumps by itself (`TORCH_FR_DUMP_TEMP_FILE`, or
`TORCH_NCCL_DEBUG_INFO_TEMP_FILE`), and its worker server answers with JSON. Both hold the same: an
object with `version` and `entries`, one for each collective
(torch/csrc/distributed/c10d/FlightRecorder.hpp). Read as torch 2.13 with gloo writes it; fields
that only NCCL fills are as its source has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rankscope_agent.contract import untrusted_json, untrusted_pickle
from rankscope_agent.contract.pickle_limits import UnsafePickle
from rankscope_agent.contract.printable import printable

MAX_FILE_BYTES = 64 << 20
"""Twice the largest that torch was seen to write: 20,000 entries with stacks of 20 frames."""

MAX_ANSWER_BYTES = 4 << 20
"""Four times the 0.94 MB of the 2,000 entries that torch keeps by default, without stacks."""

MAX_ANSWER_ENTRIES = 8_000
"""As many as fit, at their usual 470 bytes, into MAX_ANSWER_BYTES."""

VALUES_PER_ENTRY = 64
"""Values, keys and brackets per entry of an answer: a whole one has about 30. Without a bound on
them, 4 MiB of empty brackets would become 200 MB of objects."""

MAX_FRAMES = 64
"""Frames kept of one stack; the outermost ones go."""

MAX_TEXT = 256
"""Characters kept of a frame's function or file, the end of a file's path."""

MAX_GROUPS = 10_000
MAX_DIMENSIONS = 16
MAX_TENSORS = 256

LARGEST = 1 << 48
"""Counts and sizes beyond it are in no dump."""

LARGEST_NS = 4_102_444_800 * 10**9
"""Start of the year 2100; a later time is no time."""

LONGEST_MS = 86_400_000.0
"""A day: NCCL's watchdog ends collectives after ten minutes by default."""

State = Literal["scheduled", "started", "completed"]

Reason = Literal["malformed", "refused_opcode", "too_large", "version"]

_NAME = re.compile(r"[A-Za-z0-9_.:>, \[\]-]{1,128}")


@dataclass(frozen=True, slots=True)
class DumpLimits:
    """What is taken of one dump.

    Args:
        size: bytes.
        entries: in its list.
        values: of JSON: its commas and brackets are counted before they become objects.
        pickles: it may be one.
    """

    size: int
    entries: int
    values: int
    pickles: bool


FILE_LIMITS = DumpLimits(MAX_FILE_BYTES, 100_000, 4_000_000, pickles=True)
ANSWER_LIMITS = DumpLimits(
    MAX_ANSWER_BYTES, MAX_ANSWER_ENTRIES, MAX_ANSWER_ENTRIES * VALUES_PER_ENTRY, pickles=False
)
"""What a worker server may answer: it writes no pickles there."""


class DumpError(ValueError):
    """A file that is no dump; the text says why, `reason` is of a closed vocabulary."""

    def __init__(self, reason: Reason, seen: str) -> None:
        super().__init__(seen)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a stack."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective or message as one rank has it.

    Args:
        record_id: number of the entry, counted from the start of the process.
        group: name of the process group, the same on all of its ranks.
        description: what the group is for, such as default_pg.
        operation: such as `gloo:all_reduce` or `nccl:send 0->1`.
        sequence: number of the collective in its group; 0 for messages.
        message_sequence: number of the message.
        operation_id: number among collectives and messages of the group.
        created_ns: Unix time of the call; the two others as far as the device reports them.
        duration_ms: on the device, waiting for peers included; None where it was not measured.
        input_sizes: shapes of the tensors.
        input_types: their types, such as Float.
        frames: the stack of the call, innermost first; empty where it was not asked for.
        retired: the recorder no longer watches it.
    """

    record_id: int
    group: str
    description: str
    operation: str
    sequence: int
    message_sequence: int
    operation_id: int
    is_message: bool
    state: State
    created_ns: int
    started_ns: int | None
    completed_ns: int | None
    duration_ms: float | None
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_types: tuple[str, ...]
    output_types: tuple[str, ...]
    timeout_ms: int | None
    frames: tuple[Frame, ...]
    retired: bool


@dataclass(frozen=True, slots=True)
class FlightDump:
    """What a dump holds.

    Args:
        groups: ranks of the process groups by name, where they are given.
        entries: those that can be read, in the order of the dump.
        skipped: entries that lack a field or contradict themselves.
        unread_ns: Unix times of those of them that have one.
        whole: nothing has been overwritten since the process began.
    """

    version: str
    groups: Mapping[str, tuple[int, ...]]
    entries: tuple[Entry, ...]
    skipped: int
    unread_ns: tuple[int, ...] = ()
    whole: bool = True


def read(body: bytes, limits: DumpLimits = FILE_LIMITS) -> FlightDump:
    """Read a dump, whichever of its two forms it has.

    Raises:
        DumpError: it is neither, of another version, or larger than any is.
    """
    value = _decode(body, limits)
    if not isinstance(value, dict):
        raise DumpError("malformed", "no object")
    version = value.get("version")
    if not isinstance(version, str) or not version.startswith("2."):
        raise DumpError("version", f"version {str(version)[:40]!r}, only 2.x is read")
    entries = value.get("entries", [])
    if not isinstance(entries, list) or len(entries) > limits.entries:
        raise DumpError("malformed", f"entries are no list of at most {limits.entries}")
    found = [_entry_or_none(entry) for entry in entries]
    unread = [raw for raw, entry in zip(entries, found, strict=True) if entry is None]
    return FlightDump(
        version=version[:16],
        groups=dict(_groups(value)),
        entries=tuple(entry for entry in found if entry is not None),
        skipped=len(unread),
        unread_ns=tuple(_times(unread)),
        whole=not found or (found[0] is not None and found[0].record_id == 0),
    )


def _times(entries: Iterable[Any]) -> Iterator[int]:
    """Yield the times of entries that say no more than that."""
    for entry in entries:
        with suppress(LookupError, TypeError, ValueError):
            yield _moment(entry["time_created_ns"])


def _decode(body: bytes, limits: DumpLimits) -> Any:
    if len(body) > limits.size:
        raise DumpError("too_large", f"{len(body)} bytes, at most {limits.size} are read")
    if body[:1] == b"\x80" and limits.pickles:
        try:
            return untrusted_pickle.loads(body)
        except UnsafePickle as error:
            raise DumpError(error.reason, f"a pickle that is not read: {error}") from error
    values = sum(body.count(mark) for mark in (b",", b"{", b"["))
    if values > limits.values:
        raise DumpError("too_large", f"{values} values, a dump has fewer")
    try:
        return untrusted_json.read(body)
    except ValueError as error:
        raise DumpError("malformed", f"neither a pickle nor JSON: {error}") from error


def _groups(value: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups' ranks; torch writes them as the text of a list."""
    groups = value.get("pg_config")
    if not isinstance(groups, dict) or len(groups) > MAX_GROUPS:
        return
    for name, config in groups.items():
        ranks = config.get("ranks") if isinstance(config, dict) else None
        if isinstance(name, str) and _NAME.fullmatch(name) and isinstance(ranks, str):
            numbers = re.findall(r"\d{1,7}", ranks[: 1 << 17])
            yield name, tuple(int(number) for number in numbers)


def _entry_or_none(entry: Any) -> Entry | None:
    try:
        return _entry(entry)
    except (LookupError, TypeError, ValueError, OverflowError):
        return None


def _entry(entry: Mapping[str, Any]) -> Entry:
    """Read one entry.

    Raises:
        LookupError, TypeError, ValueError, OverflowError: a field is missing or cannot be true.
    """
    group, description = entry["process_group"]
    return Entry(
        record_id=_number(entry["record_id"]),
        group=_name(group),
        description=_text(description),
        operation=_name(entry["profiling_name"]),
        sequence=_number(entry["collective_seq_id"]),
        message_sequence=_number(entry["p2p_seq_id"]),
        operation_id=_number(entry["op_id"]),
        is_message=_flag(entry["is_p2p"]),
        state=_state(entry["state"]),
        created_ns=_moment(entry["time_created_ns"]),
        started_ns=_time(entry.get("time_discovered_started_ns")),
        completed_ns=_time(entry.get("time_discovered_completed_ns")),
        duration_ms=_duration(entry.get("duration_ms")),
        input_sizes=_shapes(entry["input_sizes"]),
        output_sizes=_shapes(entry["output_sizes"]),
        input_types=_texts(entry["input_dtypes"]),
        output_types=_texts(entry["output_dtypes"]),
        timeout_ms=_time(entry.get("timeout_ms")),
        frames=tuple(_frame(frame) for frame in _items(entry.get("frames", ()))[:MAX_FRAMES]),
        retired=_flag(entry.get("retired", False)),
    )


def _number(value: Any, largest: int = LARGEST) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{str(value)[:40]} is no number of a dump")
    return value


def _moment(value: Any) -> int:
    return _number(value, LARGEST_NS)


def _time(value: Any) -> int | None:
    """Read what may be unknown, which pickles write as None and JSON as 0."""
    return None if value is None else _moment(value) or None


def _duration(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not 0 <= float(value) <= LONGEST_MS:
        raise ValueError(f"{str(value)[:40]} ms is no duration of a collective")
    return float(value)


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("neither true nor false")
    return value


def _state(value: Any) -> State:
    if value not in get_args(State):
        raise ValueError("no state of a collective")
    state: State = value
    return state


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("no name")
    return value


def _text(value: Any) -> str:
    """Return a text without what a terminal would obey."""
    if not isinstance(value, str):
        raise TypeError("no text")
    return printable(value[-MAX_TEXT:])


def _items(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError("no list")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_name(text) for text in _items(value)[:MAX_TENSORS])


def _shapes(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(_number(size) for size in _items(shape)[:MAX_DIMENSIONS])
        for shape in _items(value)[:MAX_TENSORS]
    )


def _frame(frame: Any) -> Frame:
    return Frame(_text(frame["name"]), _text(frame["filename"]), _number(frame["line"]))
