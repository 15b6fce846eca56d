"""The launches of a rank's collectives, from what its Flight Recorder holds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rankscope_agent.contract import flight_dump
from rankscope_agent.contract.flight_dump import ANSWER_LIMITS, DumpError, Entry, FlightDump
from rankscope_agent.sources.flight_recorder.failures import FlightError

MESSAGES = -1
"""Instead of a number: a rank waits for messages too, but a Flight Recorder does not say how long,
and that of gloo has no entries for them, but counts them in the `op_id` of what comes next. Entries
that contradict themselves count as such: what they were is unknown, and there was something."""


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
class Launches:
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


def read_launches(body: bytes) -> Launches:
    """Read what a worker server answered.

    Raises:
        FlightError: it is no dump of a known version, or larger than any is.
    """
    return launches_of(read_answer(body))


def read_answer(body: bytes) -> FlightDump:
    """Read the dump that a worker server answered with, which is JSON.

    Raises:
        FlightError: it is no dump of a known version, or larger than any is.
    """
    try:
        return flight_dump.read(body, ANSWER_LIMITS)
    except DumpError as error:
        reason = "malformed" if error.reason == "refused_opcode" else error.reason
        raise FlightError(reason, str(error)) from error


def launches_of(dump: FlightDump) -> Launches:
    """Return the launches that a dump is of."""
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
    # Behind the space of a message stands who sends to whom.
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
    """Return True if a group's operations since its last entry are more than its entries.

    Args:
        entry: of the dump.
        launch: what it says.
        unrecorded: operations without an entry so far, by group.
    """
    surplus = entry.operation_id - launch.seq
    before = unrecorded.setdefault(launch.group, surplus)
    unrecorded[launch.group] = surplus
    return surplus > before
