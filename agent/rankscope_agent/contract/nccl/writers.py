"""Identifies by the text before `NCCL INFO` which thread of which process wrote a record."""

from __future__ import annotations

from rankscope_agent.contract.nccl.facts import Edges, Facts, Limits, Member, Process
from rankscope_agent.contract.nccl.lines import MPI_TAG, TOKEN

MAX_TOKEN = 320
"""Bytes that identify a thread: its host (below 256), three numbers and brackets."""

MAX_PREFIX = 1024
"""Bytes examined before a record to find its writer: the prefixes of NCCL and launchers have fewer
than 400. Without this limit a long line of many records would be read again for each of them."""

MAX_PREFIXES, MAX_PREFIX_SIZES = 256, 4
"""Cached prefixes of records, and their lengths: a node has some dozens of threads, whose numbers
have few lengths."""


class Thread:
    """One thread that printed something: its process and the communicator that it names.

    Args:
        process: the process that it belongs to.
        channels: channel counts it printed, for collectives and NVLS, until it names the
            communicator.
        lazy: where its connections are kept while none of its communicators is being initialised.
    """

    __slots__ = ("channels", "lazy", "member", "process", "sink")

    def __init__(self, process: Process, lazy: Edges) -> None:
        self.process = process
        self.lazy = self.sink = lazy
        self.member: Member | None = None
        self.channels: tuple[int, int | None] | None = None


class Writers:
    """The threads and processes of a log.

    Args:
        facts: where processes and connections of threads are kept.
        limits: limits on their numbers.
    """

    def __init__(self, facts: Facts, limits: Limits) -> None:
        self.limits = limits
        self.threads: dict[bytes, Thread] = {}
        """By the text before `NCCL INFO`, from the host on."""
        self._prefixes: dict[bytes, Thread] = {}
        self._prefix_sizes: list[int] = []
        self._facts = facts
        self._hosts: set[str] = {host for host, _ in facts.processes}
        self._edge_sets = sum(map(len, facts.loose_edges.values()))

    def of_record(self, text: bytes, start: int, *, torn: bool) -> tuple[bytes | None, Thread]:
        """Return the thread of the record at `start`, and the text that identifies it in the cache.

        The text begins one character before the thread's first word, because another prefix may
        have the same end. None if there is no such character.
        """
        for size in self._prefix_sizes:
            prefix = text[start - size : start]
            known = self._prefixes.get(prefix)
            if known is not None:
                return prefix, known
        line = line_of(text, start)
        inner = text.rfind(b" ", line, max(line, start - 1))
        word = text.rfind(b" ", line, max(line, inner)) + 1
        begin = word or line
        token = text[begin:start]
        thread = self.threads.get(token) or self.thread(token, torn=torn)
        if not begin:
            return None, thread
        prefix = text[begin - 1 : start]
        if token in self.threads:  # what exceeds the limits is counted each time
            self._remember(prefix, thread)
        return prefix, thread

    def _remember(self, prefix: bytes, thread: Thread) -> None:
        """Cache the prefix of a thread's records: threads of a node mostly alternate in its log."""
        size = len(prefix)
        if size not in self._prefix_sizes:
            if len(self._prefix_sizes) >= MAX_PREFIX_SIZES:
                return
            self._prefix_sizes.append(size)
        if len(self._prefixes) >= MAX_PREFIXES:
            self._prefixes.clear()
        self._prefixes[prefix] = thread

    def thread(self, token: bytes, *, torn: bool) -> Thread:
        """Return the thread identified by the text before its `NCCL INFO`, adding it if new."""
        self._facts.informed = True
        token = token[-MAX_TOKEN:]
        tag = MPI_TAG.search(token)
        if tag is not None:
            self.tag(int(tag[1]))
        match = TOKEN.search(token)
        if match is None or len(self.threads) >= self.limits.threads:
            self._facts.beyond_limits += match is not None
            return self.threads.get(b"") or self._add(b"", self.process("", 0))
        return self._add(token, self.process(self._host(match[1].decode(), torn), int(match[2])))

    def _add(self, token: bytes, process: Process) -> Thread:
        thread = self.threads[token] = Thread(process, self._new_edges(process))
        return thread

    def _host(self, name: str, torn: bool) -> str:
        """Return the host name without what a torn line left before it."""
        if torn and name not in self._hosts:
            glued = [host for host in self._hosts if host and name.endswith(host)]
            if glued:
                return max(glued, key=len)
        if not torn and len(self._hosts) < self.limits.threads:
            self._hosts.add(name)
        return name

    def process(self, host: str, pid: int) -> Process:
        """Return a process; beyond the limit, the unknown one (no host, pid 0)."""
        processes = self._facts.processes
        known = processes.get((host, pid))
        if known is None:
            if len(processes) >= self.limits.threads:
                self._facts.beyond_limits += 1
                host, pid = "", 0
            known = processes.setdefault((host, pid), Process(host, pid))
        return known

    def release(self, thread: Thread) -> None:
        """Let a thread whose communicator is complete print connections of any other one."""
        thread.member = None
        lazy = thread.lazy
        used = lazy.distinct or lazy.counts or lazy.ring_size
        if used and self._edge_sets < 2 * self.limits.threads:
            thread.lazy = self._new_edges(thread.process)
        thread.sink = thread.lazy

    def _new_edges(self, process: Process) -> Edges:
        """Return a new collection for connections of a thread that has no communicator (yet)."""
        self._edge_sets += 1
        edges_of_process = self._facts.loose_edges.setdefault((process.host, process.pid), [])
        edges_of_process.append(Edges())
        return edges_of_process[-1]

    def tag(self, rank: int) -> None:
        """Record a rank that a launcher names."""
        if len(self._facts.tagged_ranks) < self.limits.members:
            self._facts.tagged_ranks.add(rank)


def line_of(text: bytes, start: int) -> int:
    """Return the start of the line of the record at `start`, or of the part that is examined."""
    nearest = max(0, start - MAX_PREFIX)
    return max(nearest, text.rfind(b"\n", nearest, start) + 1)
