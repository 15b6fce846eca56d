"""What PyTorch's ProcessGroupNCCL prints when collectives do not end: pure, lines to values.

Messages are those of PyTorch 1.10 to 2.13 (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp and
TraceUtils.h). Every waiting rank prints a timeout three or four times; here it counts once per
rank.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from rankscope_agent.contract.log_text.prefixes import PYTORCH, RANK

MAX_EVENTS = 65_536
"""Timeouts and states remembered: four for each rank of the largest known jobs."""

MAX_OPERATION = 40
"""Longest name of an operation kept; PyTorch's longest is `ALLGATHER_INTO_TENSOR_COALESCED`."""

OPERATIONS = frozenset(
    {
        "ALLGATHER",
        "ALLGATHER_BASE",
        "ALLGATHER_INTO_TENSOR_COALESCED",
        "ALLREDUCE",
        "ALLREDUCE_COALESCED",
        "ALLREDUCE_SPARSE",
        "ALLTOALL",
        "ALLTOALL_BASE",
        "BARRIER",
        "BROADCAST",
        "COALESCED",
        "GATHER",
        "RECV",
        "REDUCE",
        "REDUCE_SCATTER",
        "REDUCE_SCATTER_TENSOR_COALESCED",
        "SCATTER",
        "SEND",
        "_ALLGATHER_BASE",
        "_BROADCAST_OOP",
        "_REDUCE_OOP",
        "_REDUCE_SCATTER_BASE",
    }
)
"""Operations as PyTorch prints them (c10d/Work.cpp opTypeToString)."""

OTHER = "other"
"""Stands for all names that PyTorch does not print."""

TIMEOUT = "TORCH_WATCHDOG_TIMEOUT"
DESYNC = "TORCH_DESYNC"
EXCEPTION = "TORCH_NCCL_EXCEPTION"
STUCK = "TORCH_WATCHDOG_STUCK"

BARRIER = b"monitoredBarrier"
"""gloo's barrier that says who did not come (ProcessGroupGloo.cpp monitoredBarrier)."""

# Patterns are compiled on first use: most logs match none of them.
#
# [rank3]: is the global rank (2.2 on); [Rank 3] and [PG ID 0 PG GUID 0(default_pg) Rank 3] are
# ranks in the group, and of the default group (0) the global one as well. Only the GUID names a
# group: IDs are counted by each process, so that all tensor-parallel groups of a job have one ID.
_GLOBAL_RANK = PYTORCH + rb"(" + RANK + rb")\]"
_GROUP_RANK = (
    rb"\[(?:PG (?:ID (?:\d{1,6} PG GUID )?)?([\w.:/+-]{1,64})[^\]\n]{0,200}? )?Rank (\d{1,7})\]"
)
# Counts are read up to 18 digits: the largest one of 64 bits stands for an unknown one.
# Of a line that was cut off, the last word or number is not whole and counts as not printed.
_WORK = rb"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(?:(\w{1,40})(?=\w{0,40}[,) ]))?([^\n]{0,400})"
_SHAPE = rb"Numel(In|Out)=(\d{1,18})(?=[,)])"
_LIMIT = rb"Timeout\(ms\)=(\d{1,18})(?=[,)])"
_RAN = rb"ran for (\d{1,18}) milliseconds"
# From 2.13 on the last started one is between the two, with its name if there is one.
_STATE = (
    rb"[Ll]ast enqueued (?:NCCL )?work: (-?\d{1,18}),"
    rb"(?: last started work: -?\d{1,18}(?: \(\w{0,40}\))?,)?"
    rb" last completed (?:NCCL )?work: (-?\d{1,18})"
)
_FAILED = rb"(?:at NCCL work|by watchdog at work(?: sequence id)?): (\d{1,18})"
_CULPRIT = (
    rb"\[([0-9][0-9, ]{0,400})\] (?:finished collective #(\d{1,18}), but didn't join collective"
    rb" #(\d{1,18})|joined but didn't finish collective #(\d{1,18}))"
)
_BARRIER = rb"\b[Rr]anks? (\d[\d, ]{0,400}) failed to pass " + BARRIER
_SIGNAL = rb"due to a collective timeout from\s+rank (\d{1,7})"
_STUCK = rb"Heartbeat monitor timed out|watchdog got stuck for"
_ENDED = rb"watchdog thread terminated with exception|raised the following async excep"


Key = tuple[int | None, str, int, str]
"""Rank, group, number and operation of a timeout."""


@dataclass(frozen=True, slots=True)
class Timeout:
    """One collective that one rank gave up on; element counts are None if not printed.

    The operation is empty where its line was cut off.
    """

    rank: int | None
    group: str
    sequence: int
    operation: str
    elements_in: int | None
    elements_out: int | None
    timeout_ms: int | None
    ran_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupState:
    """How far one rank of a group had got: the numbers of its last collectives."""

    rank: int
    group: str
    enqueued: int
    completed: int


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank named by PyTorch's desync report; `missing` is the collective it did not join."""

    rank: int
    finished: int | None
    missing: int


@dataclass(slots=True)
class WatchdogFacts:
    """The messages of a job's watchdogs; keys make each event count once.

    Args:
        earlier: timeouts of earlier attempts by operation, which are only counted.
        absent: ranks that did not come to a monitored barrier.
        stuck: ranks whose watchdogs got stuck.
        limit: how much of each kind is kept.
        repeated: timeouts whose group is known, without it: some lines repeat them so.
        of_groups: likewise without the rank.
        ungrouped: operations of timeouts whose group no line has named so far.
    """

    timeouts: dict[Key, Timeout] = field(default_factory=dict)
    states: dict[tuple[int, str], GroupState] = field(default_factory=dict)
    culprits: dict[int, Culprit] = field(default_factory=dict)
    signalled_by: set[int] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    earlier: dict[str, int] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)
    stuck: set[int] = field(default_factory=set)
    limit: int = MAX_EVENTS
    repeated: set[tuple[int | None, int, str]] = field(default_factory=set)
    of_groups: set[tuple[str, int, str]] = field(default_factory=set)
    ungrouped: dict[tuple[int | None, int], str] = field(default_factory=dict)

    def read(self, line: bytes) -> tuple[str, ...]:
        """Read a line; return the codes of what is new in it."""
        rank, group = _writer(line)
        if rank is not None and len(self.ranks) < self.limit:
            self.ranks.add(rank)
        codes = []
        if self._read_timeout(line, rank, group):
            codes.append(TIMEOUT)
        if re.search(_STUCK, line):
            codes.append(STUCK)
            if rank is not None and len(self.stuck) < self.limit:
                self.stuck.add(rank)
        if re.search(_ENDED, line):
            codes.append(EXCEPTION)
        self._read_state(line, rank, group)
        return tuple(codes)

    def read_report(self, text: bytes) -> bool:
        """Read a desync report; return True if it names a rank for the first time."""
        before = len(self.culprits)
        for ranks, finished, missing, unfinished in re.findall(_CULPRIT, text):
            for rank in re.findall(rb"\d{1,7}", ranks)[: self.limit]:
                number = int(rank)
                done = int(finished) if finished else None
                if len(self.culprits) < self.limit:
                    self.culprits[number] = Culprit(number, done, int(missing or unfinished))
        self.ranks.update(self.culprits)
        return len(self.culprits) > before

    def read_barriers(self, text: bytes) -> None:
        """Read who did not come to monitored barriers."""
        for ranks in re.findall(_BARRIER, text):
            for rank in re.findall(rb"\d{1,7}", ranks):
                if len(self.absent) < self.limit:
                    self.absent.add(int(rank))

    def counts(self) -> Counter[str]:
        """Return the number of timeouts by operation, those of earlier attempts included."""
        counts: Counter[str] = Counter()
        for operation, count in self.earlier.items():
            counts[operation if operation in OPERATIONS else OTHER] += count
        for timeout in self.timeouts.values():
            counts[timeout.operation if timeout.operation in OPERATIONS else OTHER] += 1
        return counts

    def _read_timeout(self, line: bytes, rank: int | None, group: str) -> bool:
        work = re.search(_WORK, line)
        if work is None or b"timeout" not in line:
            return False
        operation = (work[2] or b"").decode()[:MAX_OPERATION]
        key = (rank, group, int(work[1]), operation)
        if self._is_known(key) or len(self.timeouts) >= self.limit:
            return False
        shape = {name: int(number) for name, number in re.findall(_SHAPE, work[3])}
        self.timeouts[key] = Timeout(
            *key,
            shape.get(b"In"),
            shape.get(b"Out"),
            _number(re.search(_LIMIT, work[3])),
            _number(re.search(_RAN, work[3])),
        )
        self.recognise(key)
        return True

    def recognise(self, key: Key) -> None:
        """Record how later lines may repeat a timeout: with a group, or without what is known."""
        rank, group, sequence, operation = key
        if not group:
            self.ungrouped[rank, sequence] = operation
        elif max(len(self.repeated), len(self.of_groups)) < self.limit:
            self.of_groups.add((group, sequence, operation))
            self.repeated.add((rank, sequence, operation))

    def _is_known(self, key: Key) -> bool:
        """Return True if a timeout was read before, with its group or without.

        From 2.3 on a rank prints it without its group first, then with it, and finally as an
        exception, which may lack the global rank.
        """
        rank, group, sequence, operation = key
        if not group:
            return key in self.timeouts or (rank, sequence, operation) in self.repeated
        if rank is None and (group, sequence, operation) in self.of_groups:
            return True
        return self._give_group(key) or key in self.timeouts

    def _give_group(self, key: Key) -> bool:
        """Give a timeout the group that a later line names; return False if there is none."""
        rank, group, sequence, operation = key
        self.recognise(key)
        known = self.timeouts.pop((rank, "", sequence, operation), None)
        if known is not None:
            self.timeouts[key] = replace(known, group=group)
        return known is not None

    def _read_state(self, line: bytes, rank: int | None, group: str) -> None:
        state = re.search(_STATE, line)
        if state is not None and rank is not None and len(self.states) < self.limit:
            self.states[rank, group] = GroupState(rank, group, int(state[1]), int(state[2]))
            self._read_failed(line, rank, group)
        signal = re.search(_SIGNAL, line)
        if signal is not None and len(self.signalled_by) < self.limit:
            self.signalled_by.add(int(signal[1]))

    def _read_failed(self, line: bytes, rank: int, group: str) -> None:
        """Read which collective of which group failed; a process that is killed prints no more."""
        failed = re.search(_FAILED, line)
        if failed is not None and group:
            sequence = int(failed[1])
            operation = self.ungrouped.pop((rank, sequence), None)
            if operation is not None:
                self._give_group((rank, group, sequence, operation))


def _writer(line: bytes) -> tuple[int | None, str]:
    """Return the rank of a line's writer and the id of its group; empty if not printed."""
    whole = re.search(_GLOBAL_RANK, line)
    inside = re.search(_GROUP_RANK, line)
    group = inside[1].decode() if inside and inside[1] else ""
    if whole:
        return int(whole[1]), group
    return (int(inside[2]) if inside and group in {"", "0"} else None), group


def _number(match: re.Match[bytes] | None) -> int | None:
    return None if match is None else int(match[1])
