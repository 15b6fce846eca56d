"""The facts in an NCCL log: processes, members of communicators, edges, warnings.

The parser adds facts and the verdict reads them. Every collection has a limit, given by `Limits`,
because anyone who can write to a log chooses its text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rankscope_agent.contract.nccl.watchdog import MAX_EVENTS, WatchdogFacts

MAX_NAME = 64
"""Longest name of a network, device or version that is kept: the longest known ones (`AWS
Libfabric`, `2.29.7+cuda12.9`, fused device names) have fewer than 40 characters."""

MAX_EXAMPLE = 400
"""Characters of a warning kept as its example; NCCL's own lines end at 1,024 bytes."""

MAX_RANK = 1 << 20
"""Ranks at or above this are garbage: 64 times the largest known jobs (16,384 GPUs)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what is remembered of one log or of one job's logs.

    Args:
        members: ranks in communicators.
        threads: threads that printed something.
        edges: distinct connections not yet counted, over all members.
        warning_codes: kinds of warnings.
        settings: NCCL_... variables, over all processes.
        watchdog_events: timeouts and states of PyTorch's watchdogs, each.
    """

    members: int = 131_072
    threads: int = 131_072
    edges: int = 400_000
    warning_codes: int = 256
    settings: int = 1_000_000
    watchdog_events: int = MAX_EVENTS


class Transport(NamedTuple):
    """The transport of a connection, such as `NET/IB` or `P2P/IPC`, with or without GPUDirect RDMA.

    A named tuple because it is the key of many dictionaries; a dataclass would hash in Python.
    """

    name: str
    gdr: bool
    direction: str

    @property
    def is_net(self) -> bool:
        """Return True if data leaves the node through a network."""
        return self.name.startswith(("NET/", "COLLNET/"))

    @property
    def is_fabric(self) -> bool:
        """Return True if it is NVLink between nodes, which NCCL counts as one node."""
        return self.name == "P2P/MNNVL"

    @property
    def is_shared_memory(self) -> bool:
        """Return True if it uses host memory within the node."""
        return self.name.startswith("SHM")


@dataclass(slots=True)
class Edges:
    """Connections of one member, or of a thread whose member is unknown.

    Args:
        distinct: as printed, until they are counted.
        counts: distinct connections by transport.
        pairs: these connections, as `pair_code` encodes them, so that each counts once.
        owners: ranks that printed their connections here.
        highest_rank: highest rank at either end.
        ring_size: number of ranks in a printed ring; 0 if none was printed.
    """

    distinct: set[bytes] = field(default_factory=set)
    counts: dict[Transport, int] = field(default_factory=dict)
    pairs: dict[Transport, set[int]] = field(default_factory=dict)
    owners: set[int] = field(default_factory=set)
    highest_rank: int = 0
    ring_size: int = 0


def pair_code(source: int, target: int) -> int:
    """Encode a pair of ranks as one number, half as large as a tuple of two."""
    return source * MAX_RANK + target


@dataclass(slots=True)
class Process:
    """One process; the host is empty if its lines lack the prefix."""

    host: str
    pid: int
    network: str = ""
    version: str = ""
    signs: set[str] = field(default_factory=set)
    environment: dict[str, str] = field(default_factory=dict)
    error_transports: set[str] = field(default_factory=set)
    bootstrap_seconds: float | None = None


@dataclass(slots=True)
class Member:
    """One rank of one communicator, as reported by its own process.

    Args:
        group: identifies its communicator across processes: the commId if printed, else the closest
            equivalent; `linked` states whether it is certain.
        gpu: PCI address of its GPU, as printed at the start of its initialisation.
        one_process: whether `ncclCommInitAll` created its communicator from the GPUs of one
            process.
    """

    process: Process
    pointer: str
    rank: int
    nranks: int | None
    group: str
    linked: bool
    nodes: int | None = None
    mnnvl: bool = False
    started: bool = False
    complete: bool = False
    gpu: str = ""
    network: str = ""
    one_process: bool = False
    coll_channels: int | None = None
    nvls_channels: int | None = None
    init_seconds: dict[str, float] = field(default_factory=dict)
    edges: Edges = field(default_factory=Edges)


@dataclass(slots=True)
class WarningCount:
    """One kind of warning: how often it occurred, and its first occurrence."""

    count: int
    example: str


@dataclass(slots=True)
class Facts:
    """All facts read so far.

    Args:
        members: by process and pointer, the newest with that pointer.
        past_members: those whose pointer has been reused for another communicator of the process.
        loose_edges: connections of threads whose communicator is not known (yet).
        ib_errors: completion errors by device and status.
        tagged_ranks: ranks in tags of launchers and of PyTorch.
        comm_ranks: ranks in lines about communicators, including those about their end.
        largest_comm: ranks of the largest communicator in these lines; 0 before the first.
        world_size: ranks of the job according to other writers of its log; 0 if none states it.
        one_host: whether all ranks of the job are on one host, according to the table of nccl-tests
            or to NCCL up to 2.3.
        stated_version: NCCL's version according to others, such as vLLM; empty if none states it.
        group_size: ranks of the largest communicator in calls and connections; 0 if none states it.
        headless: connections printed without their ranks, by transport.
        loose_channels: channel counts printed by processes without a known communicator.
        informed: whether there are lines of level INFO.
        settings: number of NCCL_... variables kept, over all processes.
        unparsed: records that look like known ones but cannot be read.
        beyond_limits: facts left out because a limit was reached.
    """

    processes: dict[tuple[str, int], Process] = field(default_factory=dict)
    members: dict[tuple[str, int, str], Member] = field(default_factory=dict)
    past_members: list[Member] = field(default_factory=list)
    loose_edges: dict[tuple[str, int], list[Edges]] = field(default_factory=dict)
    warnings: dict[str, WarningCount] = field(default_factory=dict)
    ib_errors: dict[tuple[str, str], int] = field(default_factory=dict)
    tagged_ranks: set[int] = field(default_factory=set)
    comm_ranks: set[int] = field(default_factory=set)
    largest_comm: int = 0
    world_size: int = 0
    group_size: int = 0
    one_host: bool = False
    stated_version: str = ""
    headless: dict[Transport, int] = field(default_factory=dict)
    loose_channels: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    informed: bool = False
    watchdog: WatchdogFacts = field(default_factory=WatchdogFacts)
    version: str = ""
    settings: int = 0
    unparsed: int = 0
    beyond_limits: int = 0

    def all_members(self) -> Iterable[Member]:
        """Yield the members of every communicator, earlier ones first."""
        yield from self.past_members
        yield from self.members.values()

    def take_processes(self, other: Facts, kept: Collection[tuple[str, int]]) -> None:
        """Take over what some processes logged according to other facts.

        What names no process is left out.
        """
        self.processes = {key: other.processes[key] for key in other.processes if key in kept}
        self.members = {
            key: member for key, member in other.members.items() if key[:2] in self.processes
        }
        self.past_members = [
            member
            for member in other.past_members
            if (member.process.host, member.process.pid) in self.processes
        ]
        self.loose_edges = {
            key: edges for key, edges in other.loose_edges.items() if key in self.processes
        }
        self.loose_channels = {
            key: channels for key, channels in other.loose_channels.items() if key in self.processes
        }
        self.comm_ranks = {member.rank for member in self.all_members()}
        self.largest_comm = max((m.nranks or 0 for m in self.all_members()), default=0)
        self.version = next((p.version for p in self.processes.values() if p.version), "")
        self.settings = sum(len(one.environment) for one in self.processes.values())
        self.informed = other.informed

    def warn(self, code: str, example: str, limits: Limits) -> None:
        """Count a warning."""
        known = self.warnings.get(code)
        if known is not None:
            known.count += 1
        elif len(self.warnings) < limits.warning_codes:
            self.warnings[code] = WarningCount(1, example[:MAX_EXAMPLE])
        else:
            self.beyond_limits += 1
