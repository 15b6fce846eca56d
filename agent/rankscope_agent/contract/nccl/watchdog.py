"""What PyTorch's ProcessGroupNCCL prints when collectives do not end: pure, lines to values.

Messages are those of PyTorch 1.10 to 2.12 (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp and
TraceUtils.h). Every waiting rank prints a timeout three or four times; here it counts once per
rank.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rankscope_agent.contract.log_text.prefixes import PYTORCH, RANK

MAX_EVENTS = 65_536
"""Timeouts and states remembered: four for each rank of the largest known jobs."""

MAX_OPERATION = 40
"""Longest name of an operation kept; PyTorch's longest is `ALLGATHER_INTO_TENSOR_COALESCED`."""

TIMEOUT = "TORCH_WATCHDOG_TIMEOUT"
DESYNC = "TORCH_DESYNC"
EXCEPTION = "TORCH_NCCL_EXCEPTION"
STUCK = "TORCH_WATCHDOG_STUCK"

# Patterns are compiled on first use: most logs match none of them.\n\n[rank3]: is the global rank
# (from 2.2); [Rank 3] and [PG ID 0 PG GUID 0(default_pg) Rank 3] are ranks in the group, which for
# the default group (id 0) are global ranks as well.
#
# [rank3]: is the global rank (2.2 on); [Rank 3] and [PG ID 0 PG GUID 0(default_pg) Rank 3] are
# ranks in the group, and of the default group (id 0) the global one as well.
_GLOBAL_RANK = PYTORCH + rb"(" + RANK + rb")\]"
_GROUP_RANK = rb"\[(?:PG (?:ID )?(\d{1,6})[^\]\n]{0,200}? )?Rank (\d{1,7})\]"
# Counts are read up to 18 digits: PyTorch's have 64 bits.
_WORK = rb"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w{1,40})([^\n]{0,400})"
_SHAPE = rb"Numel(In|Out)=(\d{1,18})"
_LIMIT = rb"Timeout\(ms\)=(\d{1,18})"
_RAN = rb"ran for (\d{1,18}) milliseconds"
_STATE = (
    rb"[Ll]ast enqueued (?:NCCL )?work: (-?\d{1,18}), last completed (?:NCCL )?work: (-?\d{1,18})"
)
_CULPRIT = (
    rb"\[([0-9][0-9, ]{0,400})\] (?:finished collective #(\d{1,18}), but didn't join collective"
    rb" #(\d{1,18})|joined but didn't finish collective #(\d{1,18}))"
)
_SIGNAL = rb"due to a collective timeout from\s+rank (\d{1,7})"
_STUCK = rb"Heartbeat monitor timed out|watchdog got stuck for"
_ENDED = rb"watchdog thread terminated with exception|raised the following async excep"


@dataclass(frozen=True, slots=True)
class Timeout:
    """One collective that one rank gave up on; element counts are None if not printed."""

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
        limit: how much of each kind is kept.
    """

    timeouts: dict[tuple[int | None, str, int, str], Timeout] = field(default_factory=dict)
    states: dict[tuple[int, str], GroupState] = field(default_factory=dict)
    culprits: dict[int, Culprit] = field(default_factory=dict)
    signalled_by: set[int] = field(default_factory=set)
    stuck: set[int | None] = field(default_factory=set)
    ended: int = 0
    ranks: set[int] = field(default_factory=set)
    earlier: dict[str, int] = field(default_factory=dict)
    limit: int = MAX_EVENTS

    def read(self, line: bytes) -> tuple[str, ...]:
        """Read a line; return the codes of what is new in it."""
        rank, group = _writer(line)
        if rank is not None and len(self.ranks) < self.limit:
            self.ranks.add(rank)
        codes = []
        if self._read_timeout(line, rank, group):
            codes.append(TIMEOUT)
        if re.search(_STUCK, line):
            self.stuck.add(rank)
            codes.append(STUCK)
        if re.search(_ENDED, line):
            self.ended += 1
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

    def _read_timeout(self, line: bytes, rank: int | None, group: str) -> bool:
        work = re.search(_WORK, line)
        if work is None or b"timeout" not in line:
            return False
        operation = work[2].decode()[:MAX_OPERATION]
        key = (rank, group, int(work[1]), operation)
        if key in self.timeouts or len(self.timeouts) >= self.limit:
            return False
        shape = {name: int(number) for name, number in re.findall(_SHAPE, work[3])}
        self.timeouts[key] = Timeout(
            *key,
            shape.get(b"In"),
            shape.get(b"Out"),
            _number(re.search(_LIMIT, work[3])),
            _number(re.search(_RAN, work[3])),
        )
        return True

    def _read_state(self, line: bytes, rank: int | None, group: str) -> None:
        state = re.search(_STATE, line)
        if state is not None and rank is not None and len(self.states) < self.limit:
            self.states[rank, group] = GroupState(rank, group, int(state[1]), int(state[2]))
        signal = re.search(_SIGNAL, line)
        if signal is not None and len(self.signalled_by) < self.limit:
            self.signalled_by.add(int(signal[1]))


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
