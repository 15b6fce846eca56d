"""Tells by the text before `NCCL INFO` which thread of which process speaks, within bounds."""

from __future__ import annotations

from rankscope_agent.nccl.facts import Edges, Facts, Limits, Member, Process
from rankscope_agent.nccl.lines import MPI_TAG, TOKEN

MAX_TOKEN = 320
"""Bytes by which a thread is known again: its host (below 256), three numbers and brackets."""


class Thread:
    """One thread that printed something: its process and the communicator it speaks of.

    Args:
        process: whose it is.
        lazy: where its connections go while no communicator of it is being initialised.
    """

    __slots__ = ("lazy", "member", "process", "sink")

    def __init__(self, process: Process, lazy: Edges) -> None:
        self.process = process
        self.lazy = self.sink = lazy
        self.member: Member | None = None


class Speakers:
    """The threads and processes of a log.

    Args:
        facts: where processes and connections of threads are kept.
        limits: how many.
    """

    def __init__(self, facts: Facts, limits: Limits) -> None:
        self.limits = limits
        self.threads: dict[bytes, Thread] = {}
        """By the text before `NCCL INFO`, from the host on."""
        self._facts = facts
        self._hosts: set[str] = {host for host, _ in facts.processes}
        self._bags = sum(map(len, facts.loose_edges.values()))

    def thread(self, token: bytes, *, torn: bool) -> Thread:
        """Make known a thread by the text before its `NCCL INFO`."""
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
        thread = self.threads[token] = Thread(process, self._bag(process))
        return thread

    def _host(self, name: str, torn: bool) -> str:
        """Return the host's name without what a torn line left before it."""
        if torn and name not in self._hosts:
            glued = [host for host in self._hosts if host and name.endswith(host)]
            if glued:
                return max(glued, key=len)
        if not torn and len(self._hosts) < self.limits.threads:
            self._hosts.add(name)
        return name

    def process(self, host: str, pid: int) -> Process:
        """Return a process, that of nobody (no host, pid 0) where there is no room for it."""
        processes = self._facts.processes
        known = processes.get((host, pid))
        if known is None:
            if len(processes) >= self.limits.threads:
                self._facts.beyond_limits += 1
                host, pid = "", 0
            known = processes.setdefault((host, pid), Process(host, pid))
        return known

    def set_free(self, thread: Thread) -> None:
        """Let a thread whose communicator is complete print connections of any other one."""
        thread.member = None
        lazy = thread.lazy
        used = lazy.distinct or lazy.counts or lazy.ring_size
        if used and self._bags < 2 * self.limits.threads:
            thread.lazy = self._bag(thread.process)
        thread.sink = thread.lazy

    def _bag(self, process: Process) -> Edges:
        """Return a place for connections of a thread that has no communicator (yet)."""
        self._bags += 1
        several = self._facts.loose_edges.setdefault((process.host, process.pid), [])
        several.append(Edges())
        return several[-1]

    def tag(self, rank: int) -> None:
        """Note a rank that a launcher names."""
        if len(self._facts.tagged_ranks) < self.limits.members:
            self._facts.tagged_ranks.add(rank)
