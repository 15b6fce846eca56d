"""Parses a Flight Recorder dump: JSON of an untrusted process in, launches out, and no I/O.

The format is that of torch's `fr_trace_json` and `dump_nccl_trace_json`, version 2.x: an object
with `version` and `entries`, one entry per collective. Seen on torch 2.13 with gloo (2.10); with
NCCL as its source has it (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp): the same and
`duration_ms` where collectives are timed. Pickled dumps are never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from rankscope_agent.contract import untrusted_json

Reason = Literal[
    "symlink",
    "not_socket",
    "owner",
    "permission",
    "refused",
    "timeout",
    "too_large",
    "http",
    "malformed",
    "version",
    "no_recorder",
    "empty",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""Why nothing came of a socket; the label values of `..._flight_recorder_failures_total`."""

MAX_DUMP_BYTES = 4 << 20
"""Four times the 0.94 MB of the 2,000 entries that torch keeps by default."""

MAX_ENTRIES = 8_000
"""Entries in a dump: as many as fit, at their usual 470 bytes, into MAX_DUMP_BYTES."""

MAX_VALUES_PER_ENTRY = 64
"""Values, keys and brackets per entry: a whole one has about 30. Without a bound on them, 4 MiB of
empty brackets would become 200 MB of objects."""

MAX_UNIX_NS = 4_102_444_800 * 10**9
"""Start of the year 2100; a later time is no time."""

MAX_SEQ = 1 << 48

MESSAGES = -1
"""Instead of a number: a rank waits for messages too, but a Flight Recorder does not say how long,
and that of gloo has no entries for them, but counts them in the `op_id` of what comes next. Entries
that contradict themselves count as such: what they were is unknown, and there was something."""

MAX_DURATION_MS = 86_400_000.0
"""A day: NCCL's watchdog ends collectives after ten minutes by default."""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class FlightError(Exception):
    """Nothing came of a socket; `reason` is one of `REASONS`, the text says what was seen."""

    def __init__(self, reason: Reason, seen: str) -> None:
        super().__init__(seen)
        self.reason: Reason = reason


class Launch(NamedTuple):
    """One collective of one rank, or messages between two ranks.

    `seq` numbers the group's collectives, alike on all of its ranks; it is `MESSAGES` for messages
    before the time. `duration_us` is the time on the device, waiting for peers included, -1 where
    it was not measured.
    """

    group: str
    operation: str
    seq: int
    time_ns: int
    duration_us: int


@dataclass(frozen=True, slots=True)
class Dump:
    """What a Flight Recorder holds.

    Args:
        backend: "gloo", "nccl" or another word before the operations' colon; empty with no entry.
        launches: in order of their time.
        whole: nothing has been overwritten since the process began.
        skipped: entries that contradict themselves, and are launches of unknown length at most.
    """

    backend: str
    launches: tuple[Launch, ...]
    whole: bool
    skipped: int


def parse_dump(body: bytes) -> Dump:
    """Read a dump.

    Raises:
        FlightError: it is no dump of this version, or larger than any is.
    """
    entries = _entries(body)
    launches: list[Launch] = []
    unrecorded: dict[str, int] = {}
    whole, backend, skipped = True, "", 0
    for entry in entries:
        read = _read(entry, unrecorded)
        if read is None:
            skipped += 1
            launches += _unread(entry)
            continue
        backend, found = read
        launches += found
    if entries:
        whole = isinstance(entries[0], dict) and entries[0].get("record_id") == 0
    launches.sort(key=lambda launch: launch.time_ns)
    return Dump(backend, tuple(launches), whole, skipped)


def _read(entry: Any, unrecorded: dict[str, int]) -> tuple[str, tuple[Launch, ...]] | None:
    """Read the backend and the launches of an entry; None if it contradicts itself."""
    try:
        backend, launch = _launch(entry)
        if backend == "gloo" and _messages_before(entry, launch, unrecorded):
            messages = launch._replace(operation="messages", seq=MESSAGES)
            return backend, (messages, launch)
    except (LookupError, TypeError, ValueError, OverflowError):
        return None
    return backend, (launch,)


def _unread(entry: Any) -> Iterator[Launch]:
    """Yield something of unknown length where an entry was that says no more than its time."""
    with suppress(LookupError, TypeError, ValueError):
        time_ns = int(_number(entry["time_created_ns"], MAX_UNIX_NS))
        yield Launch("unread", "unread", MESSAGES, time_ns, -1)


def _messages_before(entry: Mapping[str, Any], launch: Launch, unrecorded: dict[str, int]) -> bool:
    """Return True if a group's operations since its last entry are more than its entries.

    Args:
        entry: of the dump.
        launch: what it says.
        unrecorded: operations without an entry so far, by group.

    Raises:
        LookupError, TypeError, ValueError: the count is missing or cannot be true.
    """
    surplus = int(_number(entry["op_id"], MAX_SEQ)) - launch.seq
    before = unrecorded.setdefault(launch.group, surplus)
    unrecorded[launch.group] = surplus
    return surplus > before


def _entries(body: bytes) -> list[Any]:
    if len(body) > MAX_DUMP_BYTES:
        raise FlightError("too_large", f"{len(body)} bytes, at most {MAX_DUMP_BYTES} are read")
    values = sum(body.count(mark) for mark in (b",", b"{", b"["))
    if values > MAX_ENTRIES * MAX_VALUES_PER_ENTRY:
        raise FlightError("too_large", f"{values} values, a dump has fewer")
    try:
        dump = untrusted_json.read(body)
    except ValueError as error:
        raise FlightError("malformed", f"no JSON: {error}") from error
    if not isinstance(dump, dict):
        raise FlightError("malformed", "JSON, but no object")
    version = dump.get("version")
    if not isinstance(version, str) or not version.startswith("2."):
        raise FlightError("version", f"version {str(version)[:40]!r}, only 2.x is read")
    entries = dump.get("entries", [])
    if not isinstance(entries, list):
        raise FlightError("malformed", "entries are no list")
    return entries


def _launch(entry: Mapping[str, Any]) -> tuple[str, Launch]:
    """Read the backend and the launch of one entry.

    Raises:
        LookupError, TypeError, ValueError, OverflowError: a field is missing or cannot be true.
    """
    name = entry["profiling_name"]
    messages = bool(entry["is_p2p"])
    if messages and isinstance(name, str):
        name = name.partition(" ")[0]  # behind it: who sends to whom
    backend, _, operation = _name(name).partition(":")
    duration_us = -1
    if entry.get("duration_ms") is not None:
        duration_us = round(_number(float(entry["duration_ms"]), MAX_DURATION_MS) * 1e3)
    return backend, Launch(
        group=_name(entry["process_group"][0]),
        operation=operation,
        seq=MESSAGES if messages else int(_number(entry["collective_seq_id"], MAX_SEQ)),
        time_ns=int(_number(entry["time_created_ns"], MAX_UNIX_NS)),
        duration_us=duration_us,
    )


def _name(text: Any) -> str:
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise ValueError("no name")
    return text


def _number(value: float, largest: float) -> float:
    if isinstance(value, bool) or not 0 <= value <= largest:
        raise ValueError(f"{value!r} is not from 0 to {largest}")
    return value


def parse_handlers(body: bytes) -> Iterator[str]:
    """Yield the names of the handlers that a worker server lists.

    Raises:
        FlightError: it lists none.
    """
    try:
        names = untrusted_json.read(body)
    except ValueError as error:
        raise FlightError("malformed", f"no JSON: {error}") from error
    if not isinstance(names, list):
        raise FlightError("malformed", "handlers are no list")
    yield from (name for name in names if isinstance(name, str))
