"""The launches of a rank's collectives, from a dump of its Flight Recorder. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rankscope_agent.contract import flight_dump
from rankscope_agent.contract.flight_dump import ANSWER_LIMITS, DumpError, Entry, FlightDump
from rankscope_agent.sources.flight_recorder.failures import FlightError

MESSAGES = -1
"""Used instead of a sequence number: a rank waits for messages too, but a Flight Recorder does not
record how long, and that of gloo has no entries for them, only counting them in the `op_id` of the
next entry. Entries that contradict themselves count as messages: something unknown was launched."""


class Launch(NamedTuple):
    """One collective of one rank, or messages between two ranks.

    `seq` numbers the group's collectives, identically on all of its ranks; it is `MESSAGES` for
    messages before `time_ns`. `duration_us` is the time on the device, including the wait for
    peers; -1 if not measured.
    """

    group: str
    operation: str
    seq: int
    time_ns: int
    duration_us: int


@dataclass(frozen=True, slots=True)
class Launches:
    """The contents of a Flight Recorder.

    Args:
        backend: "gloo", "nccl" or another word before the colon of the operations; empty without
            entries.
        launches: in order of their time.
        whole: whether nothing has been overwritten since the process began.
        skipped: number of entries that contradict themselves: at most launches of unknown length.
    """

    backend: str
    launches: tuple[Launch, ...]
    whole: bool
    skipped: int


def read_launches(body: bytes) -> Launches:
    """Read the answer of a worker server.

    Raises:
        FlightError: it is not a dump of a known version, or it is too large.
    """
    return launches_of(read_answer(body))


def read_answer(body: bytes) -> FlightDump:
    """Read the dump in a worker server's answer, which is JSON.

    Raises:
        FlightError: it is not a dump of a known version, or it is too large.
    """
    try:
        return flight_dump.read(body, ANSWER_LIMITS)
    except DumpError as error:
        reason = "malformed" if error.reason == "refused_opcode" else error.reason
        raise FlightError(reason, str(error)) from error


def launches_of(dump: FlightDump) -> Launches:
    """Return the launches in a dump."""
    unread = [Launch("unread", "unread", MESSAGES, at, -1) for at in dump.unread_ns]
    launches = [*_launches(dump.entries), *unread]
    launches.sort(key=lambda launch: launch.time_ns)
    backend = dump.entries[-1].operation.partition(":")[0] if dump.entries else ""
    return Launches(backend, tuple(launches), dump.whole, dump.skipped)


def _launches(entries: Sequence[Entry]) -> Iterator[Launch]:
    unrecorded: dict[str, int] = {}
    for entry in entries:
        backend, launch = _launch(entry)
        if backend == "gloo" and _messages_before(entry, launch, unrecorded):
            yield launch._replace(operation="messages", seq=MESSAGES)
        yield launch


def _launch(entry: Entry) -> tuple[str, Launch]:
    """Return the backend and the launch of one entry."""
    # In a message's name, a space is followed by sender and receiver.
    name = entry.operation.partition(" ")[0] if entry.is_message else entry.operation
    backend, _, operation = name.partition(":")
    return backend, Launch(
        group=entry.group,
        operation=operation,
        seq=MESSAGES if entry.is_message else entry.sequence,
        time_ns=entry.created_ns,
        duration_us=-1 if entry.duration_ms is None else round(entry.duration_ms * 1e3),
    )


def _messages_before(entry: Entry, launch: Launch, unrecorded: dict[str, int]) -> bool:
    """Return True if a group's operations since its last entry outnumber its entries.

    Args:
        entry: an entry of the dump.
        launch: the launch read from it.
        unrecorded: number of operations without an entry so far, by group.
    """
    surplus = entry.operation_id - launch.seq
    before = unrecorded.setdefault(launch.group, surplus)
    unrecorded[launch.group] = surplus
    return surplus > before
