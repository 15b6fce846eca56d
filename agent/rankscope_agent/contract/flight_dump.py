"""Dumps of PyTorch's Flight Recorder: JSON or pickle from an untrusted writer, validated.

torch writes pickles when a watchdog dumps on its own (`TORCH_FR_DUMP_TEMP_FILE`, or
`TORCH_NCCL_DEBUG_INFO_TEMP_FILE`); its worker server answers with JSON. Both contain an object with
`version` and `entries`, one entry per collective (torch/csrc/distributed/c10d/FlightRecorder.hpp).
The format is that of torch 2.13 with gloo; fields that only NCCL fills in follow torch's source, as
does the format of torch 2.3 (`early_flight_dump`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rankscope_agent.contract import early_flight_dump, untrusted_json, untrusted_pickle
from rankscope_agent.contract.pickle_limits import UnsafePickle
from rankscope_agent.contract.printable import printable

MAX_FILE_BYTES = 64 << 20
"""Twice the largest dump that torch was seen to write: 20,000 entries with stacks of 20 frames."""

MAX_ANSWER_BYTES = 4 << 20
"""Four times the 0.94 MB of the 2,000 entries that torch keeps by default, without stacks."""

MAX_ANSWER_ENTRIES = 8_000
"""As many entries, at their usual 470 bytes, as fit into MAX_ANSWER_BYTES."""

VALUES_PER_ENTRY = 64
"""Values, keys and brackets per entry of an answer: a complete entry has about 30. Without this
limit, 4 MiB of empty brackets would become 200 MB of objects."""

MAX_FRAMES = 64
"""Frames kept of one stack; the outermost ones are dropped."""

MAX_TEXT = 256
"""Characters kept of a frame's function or file name; of a path, its end."""

MAX_GROUPS = 10_000
MAX_DIMENSIONS = 16
MAX_TENSORS = 256

LARGEST = 1 << 48
"""No dump has counts or sizes above this."""

LARGEST_NS = 4_102_444_800 * 10**9
"""Start of the year 2100; later times are rejected."""

LONGEST_MS = 86_400_000.0
"""A day: NCCL's watchdog aborts collectives after ten minutes by default."""

EXPECTED = (
    "expected 2.x (PyTorch 2.4 and later) or 1.4 (2.3): older dumps do not list the ranks of"
    " groups, so compare stacks (py-spy dump); newer ones need a newer Rankscope"
)

State = Literal["scheduled", "started", "completed"]

Reason = Literal["malformed", "refused_opcode", "too_large", "version"]

_NAME = re.compile(r"[A-Za-z0-9_.:<>, \[\]-]{1,128}")
"""Names of groups, types and operations, such as `nccl:recv 0<-1`."""


@dataclass(frozen=True, slots=True)
class DumpLimits:
    """Limits on one dump.

    Args:
        size: in bytes.
        entries: in its list.
        values: of JSON: commas and brackets are counted before they become objects.
        pickles: whether it may be a pickle.
    """

    size: int
    entries: int
    values: int
    pickles: bool


FILE_LIMITS = DumpLimits(MAX_FILE_BYTES, 100_000, 4_000_000, pickles=True)
ANSWER_LIMITS = DumpLimits(
    MAX_ANSWER_BYTES, MAX_ANSWER_ENTRIES, MAX_ANSWER_ENTRIES * VALUES_PER_ENTRY, pickles=False
)
"""Limits on the answer of a worker server, which never sends pickles."""


class DumpError(ValueError):
    """A file that is not a valid dump; the text says why, `reason` is one of `Reason`."""

    def __init__(self, reason: Reason, seen: str) -> None:
        super().__init__(seen)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective or message as one rank recorded it.

    Args:
        record_id: number of the entry, counted from the start of the process.
        group: name of the process group, the same on all of its ranks.
        description: the purpose of the group, such as default_pg.
        operation: such as `gloo:all_reduce` or `nccl:send 0->1`.
        sequence: number of the collective in its group; 0 for messages.
        message_sequence: number of the message.
        operation_id: number among the collectives and messages of the group.
        created_ns: Unix time of the call; the other two times if the device reports them.
        duration_ms: on the device, including the wait for peers; None if not measured.
        input_sizes: shapes of the tensors.
        input_types: data types of the tensors, such as Float.
        frames: the stack of the call, innermost first; empty if it was not requested.
        retired: whether the recorder has stopped watching it.
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
    """The contents of a dump.

    Args:
        groups: ranks of the process groups by name, if given.
        entries: the readable ones, in the order of the dump.
        skipped: number of entries that lack a field or contradict themselves.
        unread_ns: Unix times of the skipped entries that have one.
        whole: whether nothing has been overwritten since the process began.
    """

    version: str
    groups: Mapping[str, tuple[int, ...]]
    entries: tuple[Entry, ...]
    skipped: int
    unread_ns: tuple[int, ...] = ()
    whole: bool = True


def read(body: bytes, limits: DumpLimits = FILE_LIMITS) -> FlightDump:
    """Read a dump in either of its two formats.

    Raises:
        DumpError: it has neither format, an unknown version, or is too large.
    """
    value = _decode(body, limits)
    if not isinstance(value, dict):
        raise DumpError("malformed", "no object")
    entries = value.get("entries", [])
    if not isinstance(entries, list) or len(entries) > limits.entries:
        raise DumpError("malformed", f"entries are not a list of at most {limits.entries}")
    value = _in_known_format(value)
    entries = value.get("entries", [])
    found = [_entry_or_none(entry) for entry in entries]
    unread = [raw for raw, entry in zip(entries, found, strict=True) if entry is None]
    return FlightDump(
        version=value["version"][:16],
        groups=dict(_groups(value)),
        entries=tuple(entry for entry in found if entry is not None),
        skipped=len(unread),
        unread_ns=tuple(_times(unread)),
        whole=not found or (found[0] is not None and found[0].record_id == 0),
    )


def _in_known_format(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a dump with the fields of format 2.

    Raises:
        DumpError: it has an unknown version, or lacks what its version has.
    """
    version = value.get("version")
    if isinstance(version, str) and version.startswith("2."):
        return value
    if version != early_flight_dump.VERSION:
        raise DumpError("version", f"version {str(version)[:40]!r}, {EXPECTED}")
    try:
        return early_flight_dump.as_later(value)
    except early_flight_dump.MixedGroupError as error:
        raise DumpError("version", str(error)) from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DumpError("malformed", f"version {version} lacks or garbles {error}") from error


def _times(entries: Iterable[Any]) -> Iterator[int]:
    """Yield the times of entries of which nothing else can be read."""
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
            raise DumpError(error.reason, f"the pickle was refused: {error}") from error
    values = sum(body.count(mark) for mark in (b",", b"{", b"["))
    if values > limits.values:
        raise DumpError("too_large", f"{values} values, more than any dump has")
    try:
        return untrusted_json.read(body)
    except ValueError as error:
        raise DumpError("malformed", f"neither a pickle nor JSON: {error}") from error


def _groups(value: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the ranks of each group, which torch writes as the text of a list."""
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
        LookupError, TypeError, ValueError, OverflowError: a field is missing or implausible.
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
        raise ValueError(f"{str(value)[:40]} is not a plausible number")
    return value


def _moment(value: Any) -> int:
    return _number(value, LARGEST_NS)


def _time(value: Any) -> int | None:
    """Read a time that may be unknown, which pickles write as None and JSON as 0."""
    return None if value is None else _moment(value) or None


def _duration(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not 0 <= float(value) <= LONGEST_MS:
        raise ValueError(f"{str(value)[:40]} ms is not a plausible duration of a collective")
    return float(value)


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("expected true or false")
    return value


def _state(value: Any) -> State:
    if value not in get_args(State):
        raise ValueError("unknown state of a collective")
    state: State = value
    return state


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("no name")
    return value


def _text(value: Any) -> str:
    """Return a text without characters that a terminal would interpret."""
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
