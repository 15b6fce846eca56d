"""Reads NCCL's and PyTorch's log lines, chunk by chunk, in bounded memory: bytes in, facts out.

This module draws no conclusions (`verdict` does), opens no files and does not know the time.
"""

from __future__ import annotations

import itertools
import re

from rankscope_agent.contract.nccl.channels import give_channels, read_channels
from rankscope_agent.contract.nccl.early_lines import early_communicator
from rankscope_agent.contract.nccl.facts import MAX_NAME, MAX_RANK, Facts, Limits, Member, Process
from rankscope_agent.contract.nccl.info_lines import Reader, info_line
from rankscope_agent.contract.nccl.job_size import (
    OPENING_BYTES,
    group_size,
    on_one_host,
    stated_version,
    world_size,
)
from rankscope_agent.contract.nccl.lines import (
    BARE,
    CONNECTION,
    EVENT_END,
    INFO,
    LEFT_OUT,
    MAX_PAIRS,
    TORCH_TAG,
    WARN_PREFIX,
    WARNING,
    CommLine,
    count,
    parse_collnet,
    parse_comm,
    parse_timings,
    records,
    sum_up,
)
from rankscope_agent.contract.nccl.untimed import UntimedMembers
from rankscope_agent.contract.nccl.warnings import classify
from rankscope_agent.contract.nccl.watchdog import BARRIER, DESYNC
from rankscope_agent.contract.nccl.writers import Thread, Writers, line_of

CONTEXT_BYTES = 4096
"""Bytes examined after an exception: they contain its `Last error:` and the desync report."""

MAX_CONTEXTS = 100_000
"""Exceptions whose surroundings are examined: more than the ranks of the largest jobs."""

_VERSION = re.compile(rb"NCCL version (\d[\w.+-]{0,40})")
_LAST_ERROR = re.compile(rb"Last error:\s*\n?(?:\[?rank\d+\]?:\s*)?([^\n]{1,1024})")


class NcclLog:
    """The incremental parser of one log, or of all logs of one job.

    Args:
        limits: limits on what is remembered.
        facts: the facts found by an earlier parser of the same logs.
    """

    def __init__(self, limits: Limits | None = None, facts: Facts | None = None) -> None:
        self.limits = limits or Limits()
        self.facts = facts or Facts()
        self.facts.watchdog.limit = self.limits.watchdog_events
        self._writers = Writers(self.facts, self.limits)
        self._starting = {
            (m.process.host, m.gpu, m.rank, m.nranks): m
            for m in self.facts.members.values()
            if m.gpu and m.started
        }
        self._untimed = UntimedMembers(self.facts.members.values())
        self._new_edges = 0
        self._last_writer: tuple[bytes | None, Thread | None] = (None, None)
        self._pairs = MAX_PAIRS
        self._contexts = 0
        self._open_context = False
        self._opening_left = OPENING_BYTES

    def feed(self, lines: bytes) -> int:
        """Process complete plain lines, as from `Unframer`; return the number of records."""
        if self._open_context:
            self._open_context = False
            self._read_context(lines[:CONTEXT_BYTES])
        if self._opening_left > 0:
            self._read_opening(lines)
        if BARRIER in lines:
            self.facts.watchdog.read_barriers(lines)
        found = self._scan(lines, torn=False)
        if self._new_edges > self.limits.edges:
            self.sum_up()
        return found

    def _read_opening(self, lines: bytes) -> None:
        """Search the beginning of the log for what others state about the job."""
        opening = lines[: self._opening_left]
        self._opening_left -= len(opening)
        self.facts.world_size = max(self.facts.world_size, world_size(opening))
        early = early_communicator(opening)
        self.facts.one_host = self.facts.one_host or on_one_host(opening) or early.one_host
        self.facts.group_size = max(self.facts.group_size, group_size(opening), early.size)
        self.facts.stated_version = self.facts.stated_version or stated_version(opening)
        self.facts.informed = self.facts.informed or b"NCCL INFO " in opening

    def stop_growing(self) -> None:
        """Keep nothing new from here on; what is left out is counted."""
        self.limits = Limits(0, 0, self.limits.edges, 0, 0, 0)
        self._writers.limits = self.limits
        self.facts.watchdog.limit = 0
        self._pairs = 0

    @property
    def threads(self) -> int:
        """Number of known threads."""
        return len(self._writers.threads)

    def sum_up(self) -> None:
        """Count the edges gathered so far; the same edges count again if seen later."""
        facts = self.facts
        loose = itertools.chain.from_iterable(facts.loose_edges.values())
        for edges in itertools.chain((m.edges for m in facts.all_members()), loose):
            if edges.distinct:
                facts.unparsed += sum_up(edges, self._pairs)
        self._new_edges = 0

    def _scan(self, text: bytes, *, torn: bool) -> int:
        """Read every record; `torn` states that the text begins in the middle of a line."""
        found = 0
        # The prefix of the last writer's records, and its thread: the next chunk mostly continues
        # with it.
        last, thread = (None, None) if torn else self._last_writer
        size = len(last or b"")
        for match in records(text):
            found += 1
            kind = match.lastindex
            if kind is None or kind > INFO:
                self._read_record(text, match)
                continue
            start = match.start()
            if thread is None or text[start - size : start] != last:
                last, thread = self._writers.of_record(text, start, torn=torn)
                size = len(last or b"")
            if kind == INFO:
                self._read_info(thread, match)
            elif match[CONNECTION] not in thread.sink.distinct:  # the hot path: most are repeated
                self._read_connection(thread, match)
        if not torn:
            self._last_writer = last, thread
        return found

    def _read_connection(self, thread: Thread, match: re.Match[bytes]) -> None:
        """Remember a connection, which is parsed when edges are counted."""
        connection = match[CONNECTION]
        if b" NCCL " in connection:
            self._read_fused(thread, match)
        else:
            thread.sink.distinct.add(connection)
            self._new_edges += 1

    def _read_fused(self, thread: Thread, match: re.Match[bytes]) -> None:
        """Read a record that another writer's record interrupts, then the interrupting one.

        What was overwritten is lost; a connection cannot be recovered reliably.
        """
        if match.lastindex == INFO:
            info = match[INFO]
            cut = info.find(b" NCCL ")
            end = info.rfind(b" ", 0, info.rfind(b" ", 0, cut)) + 1
            whole = EVENT_END.match(info, end)
            self._read_statement(thread, info[: whole.end() if whole else end])
        self._scan(match.group()[len(b"NCCL") :], torn=True)

    def _read_record(self, text: bytes, match: re.Match[bytes]) -> None:
        start = match.start()
        line = line_of(text, start)
        warn = match[WARNING]
        if warn is not None:
            self._read_warning(text, text[line:start], warn, match.end())
        else:
            self._read_bare(text, line, match)

    def _read_info(self, thread: Thread, match: re.Match[bytes]) -> None:
        info = match[INFO]
        if b" NCCL " in info:
            self._read_fused(thread, match)
        else:
            self._read_statement(thread, info)

    def _read_statement(self, thread: Thread, info: bytes) -> None:
        line = info_line(info)
        if line is None:
            return
        if line.subject == "communicator":
            self._read_comm(thread, info)
            return
        text = info.partition(LEFT_OUT)[0].decode(errors="replace").rstrip()
        if line.read is not None:
            self._read_process(thread, text, line.read)
        elif line.subject == "timings":
            self._read_timings(thread, text)
        elif line.subject == "channels":
            self._new_edges += read_channels(self.facts, self.limits, thread, info)
        elif line.subject == "collnet":
            self._read_collnet(thread, text)

    def _read_process(self, thread: Thread, text: str, read: Reader) -> None:
        """Read a line about a process rather than a communicator."""
        process, facts = thread.process, self.facts
        if text.startswith("NCCL_") and facts.settings >= self.limits.settings:
            facts.beyond_limits += 1
            return
        before = len(process.environment)
        for code in read(process, text):
            facts.warn(code, text, self.limits)
        facts.settings += len(process.environment) - before
        if process.version and not self.facts.version:
            self.facts.version = process.version
        if thread.member is not None and text.startswith("Using"):
            thread.member.network = process.network

    def _read_comm(self, thread: Thread, info: bytes) -> None:
        line = parse_comm(info)
        if line is None:
            self.facts.unparsed += 1
            return
        if len(self.facts.comm_ranks) < self.limits.members:
            self.facts.comm_ranks.add(line.rank)
        self.facts.largest_comm = max(self.facts.largest_comm, line.nranks or 0)
        member = self._member(thread.process, line)
        if member is None or line.event == "DESTROYED":
            return
        if line.nodes is not None:
            member.nodes, member.mnnvl = line.nodes, line.mnnvl
        if line.event:
            member.gpu = member.gpu or line.gpu
            member.one_process = member.one_process or b"ncclCommInitAll " in info
            self._begin_or_end(thread, member, line.event)

    def _begin_or_end(self, thread: Thread, member: Member, event: str) -> None:
        """Record Init START or COMPLETE, and which member owns the thread's next connections."""
        member.network = member.network or thread.process.network
        if event == "START":
            self._forget_predecessor(member)
            member.started = True
            thread.member, thread.sink = member, member.edges
            return
        member.complete = True
        give_channels(thread, member)
        if thread.sink is not member.edges:
            # Before 2.18.3 there is no START: what the thread printed belongs to this member.
            member.edges.distinct |= thread.sink.distinct
            thread.sink.distinct = set()
        if thread.member is None:
            thread.member = member
        elif thread.member is member:  # what this thread connects from here on is lazy
            self._writers.release(thread)

    def _forget_predecessor(self, member: Member) -> None:
        """Forget a member of the same rank and GPU whose initialization never completed.

        A GPU has one process of a rank at a time: a launcher has restarted the job's workers, and
        the earlier process is gone.
        """
        if not member.gpu:
            return
        slot = (member.process.host, member.gpu, member.rank, member.nranks)
        former = self._starting.get(slot)
        self._starting[slot] = member
        if former is None or former.complete or former.process is member.process:
            return
        if former.group == member.group:  # two at a time, as a misconfigured launcher starts them
            return
        key = (former.process.host, former.process.pid, former.pointer)
        if self.facts.members.get(key) is former:
            del self.facts.members[key]
            self._untimed.discard(former)

    def _member(self, process: Process, line: CommLine) -> Member | None:
        """Return the member that a line is about; None if it cannot be kept."""
        members = self.facts.members
        key = (process.host, process.pid, line.pointer)
        known = members.get(key)
        if known is not None and _same(known, line):
            if line.comm_id and not known.linked:
                known.group, known.linked = line.comm_id, True
            if known.nranks is None and line.nranks is not None:
                self._untimed.discard(known)
                known.nranks = line.nranks
                self._untimed.add(known)
            return known
        # Without an event and the nodes, the line was cut off before the name of its group.
        named = line.event or (line.nranks is not None and line.nodes is not None)
        if line.event == "DESTROYED" or not named:
            return None
        if len(members) + len(self.facts.past_members) >= self.limits.members:
            self.facts.beyond_limits += 1
            return None
        if known is not None:
            self.facts.past_members.append(known)
            self._untimed.discard(known)
        group, linked = self._group(process, line)
        made = Member(process, line.pointer, line.rank, line.nranks, group, linked)
        members[key] = made
        self._untimed.add(made)
        return made

    def _group(self, process: Process, line: CommLine) -> tuple[str, bool]:
        """Name a member's communicator, and state whether other processes use the same name."""
        if line.comm_id:
            return line.comm_id, True
        if line.split is not None:
            pointer, child, colour = line.split
            parent = self.facts.members.get((process.host, process.pid, pointer))
            if parent is not None and parent.linked and child:
                return f"{parent.group}/{child}/{colour}"[:128], True
            return f"split of {line.nranks} ranks, color {colour}"[:128], False
        return f"{line.nranks} ranks", False

    def _read_timings(self, thread: Thread, text: str) -> None:
        timings = parse_timings(text)
        if timings is None:
            self.facts.unparsed += 1
            return
        rank, nranks, seconds = timings
        if nranks <= MAX_RANK:
            self.facts.largest_comm = max(self.facts.largest_comm, nranks)
        member = self._untimed.take(thread.process, rank, nranks)
        if member is not None:
            member.init_seconds = seconds

    def _read_collnet(self, thread: Thread, text: str) -> None:
        found = parse_collnet(text)
        if found is not None:
            rank, transport = found
            count(thread.sink, transport, [(rank, rank)], self._pairs)

    def _read_warning(self, text: bytes, prefix: bytes, warn: bytes, end: int) -> None:
        message = warn[len(b"WARN ") :].decode(errors="replace").strip()
        self._count_warning(message, self._writer(prefix))
        self._read_around(text, end)

    def _writer(self, prefix: bytes) -> Process:
        match = WARN_PREFIX.search(prefix)
        if match is None:
            return self._writers.process("", 0)
        return self._writers.process(match[1].decode(), int(match[2]))

    def _count_warning(self, message: str, process: Process) -> None:
        warned = classify(message)
        self.facts.warn(warned.code, message, self.limits)
        if warned.transport:
            process.error_transports.add(warned.transport)
        if warned.status:
            key = (warned.device, warned.status)
            errors = self.facts.ib_errors
            if key in errors or len(errors) < self.limits.warning_codes:
                errors[key] = errors.get(key, 0) + 1
        process.signs.add(warned.code)

    def _read_bare(self, text: bytes, line: int, match: re.Match[bytes]) -> None:
        """Read a version line, or what PyTorch says."""
        whole = text[line : match.end()]
        version = _VERSION.search(whole)
        if version is not None and not self.facts.version:
            self.facts.version = version[1].decode()[:MAX_NAME]
        if match[BARE].startswith(b" version"):
            return
        for code in self.facts.watchdog.read(whole):
            self.facts.warn(code, whole.decode(errors="replace"), self.limits)
        self._read_context(whole)
        self._read_around(text, match.end())

    def _read_around(self, text: bytes, end: int) -> None:
        """Read the lines after a warning or an exception, which may not have arrived yet."""
        if self._contexts >= MAX_CONTEXTS:
            return
        self._contexts += 1
        after = text[end : end + CONTEXT_BYTES]
        # What follows the next record is examined when that record is read.
        self._open_context = len(after) < CONTEXT_BYTES and b"NCCL" not in after
        self._read_context(after.split(b"NCCL", 1)[0])

    def _read_context(self, after: bytes) -> None:
        error = _LAST_ERROR.search(after)
        if error is not None:
            self._count_warning(
                error[1].decode(errors="replace").strip(), self._writers.process("", 0)
            )
        if b" collective #" in after and self.facts.watchdog.read_report(after):
            self.facts.warn(DESYNC, after.decode(errors="replace"), self.limits)
        for rank in TORCH_TAG.findall(after):
            self._writers.tag(int(rank))


def _same(member: Member, line: CommLine) -> bool:
    """Return True if a line is about the last member that had its pointer."""
    if line.rank != member.rank or (line.nranks or member.nranks) != (member.nranks or line.nranks):
        return False
    return not (line.comm_id and member.linked and line.comm_id != member.group)
