"""What an NCCL log says, as facts: processes, communicators' members, edges, warnings.

The parser adds to these and the verdict reads them. Every collection has a bound, given by
`Limits`: anyone who can write a log chooses the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rankscope_agent.contract.nccl.watchdog import MAX_EVENTS, WatchdogFacts

MAX_NAME = 64
"""Longest network, device or version name kept: the longest known (`AWS Libfabric`,
`2.29.7+cuda12.9`, fused device names) have below 40 characters."""

MAX_EXAMPLE = 400
"""Length of a warning kept as its example; NCCL's own lines end at 1,024 bytes."""

MAX_RANK = 1 << 20
"""Ranks at and above this are garbage: 64 times the largest jobs known (16,384 GPUs)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is remembered of one log or one job's logs.

    Args:
        members: ranks in communicators.
        threads: threads that printed something.
        edges: distinct connections not yet summed up, over all members.
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
    """How data goes: `NET/IB`, `P2P/IPC` or so as NCCL prints it, with GPUDirect RDMA or not.

    It is a key of many dictionaries; a dataclass would take its hash in Python.
    """

    name: str
    gdr: bool
    direction: str

    @property
    def is_net(self) -> bool:
        """Return True if it leaves the node through a network."""
        return self.name.startswith(("NET/", "COLLNET/"))

    @property
    def is_fabric(self) -> bool:
        """Return True if it goes over NVLink between nodes, which NCCL counts as one."""
        return self.name == "P2P/MNNVL"

    @property
    def is_shared_memory(self) -> bool:
        """Return True if it goes through host memory inside the node."""
        return self.name.startswith("SHM")


@dataclass(slots=True)
class Edges:
    """Connections of one member, or of a thread of which no member is known.

    Args:
        distinct: as printed, until they are summed up.
        counts: distinct connections by transport.
        pairs: these connections, as `pair_code` writes them, so that each counts once.
        owners: ranks that printed their connections here.
        highest_rank: highest rank at either end.
        ring_size: ranks in a printed ring, 0 where none was.
    """

    distinct: set[bytes] = field(default_factory=set)
    counts: dict[Transport, int] = field(default_factory=dict)
    pairs: dict[Transport, set[int]] = field(default_factory=dict)
    owners: set[int] = field(default_factory=set)
    highest_rank: int = 0
    ring_size: int = 0


def pair_code(source: int, target: int) -> int:
    """Write a pair of ranks as one number, half as large as a tuple of two."""
    return source * MAX_RANK + target


@dataclass(slots=True)
class Process:
    """One process; host is empty where the prefix is missing from its lines."""

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
    """One rank of one communicator, as its own process reports it.

    Args:
        group: what its communicator is known by across processes: its commId where that is
            printed, else what comes nearest; `linked` says that it is known for certain.
        gpu: PCI address of its GPU as the start of its initialisation has it.
        one_process: its communicator was made by `ncclCommInitAll`, of one process's GPUs.
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
    """One kind of warning: how often it came, and the first that came."""

    count: int
    example: str


@dataclass(slots=True)
class Facts:
    """Everything logged so far.

    Args:
        members: by process and pointer, the newest that has that pointer.
        past_members: those whose pointer another communicator of the process has by now.
        loose_edges: connections of threads whose communicator is not known (yet).
        ib_errors: completion errors by device and status.
        tagged_ranks: ranks named by launchers' tags and by PyTorch's.
        comm_ranks: ranks named by communicators' lines, those about their end included.
        largest_comm: ranks of the largest communicator named by these, 0 before the first.
        world_size: ranks of the job by other writers of its log, 0 where none says it.
        one_host: all ranks of the job are on one host, by the table of nccl-tests, or by what NCCL
            up to 2.3 says.
        stated_version: NCCL's version by others, such as vLLM, empty where they say none.
        group_size: ranks of the largest communicator by calls and connections, 0 likewise.
        headless: connections printed without their ranks, by transport.
        loose_channels: numbers of channels that processes without a known communicator print.
        informed: there are lines of the INFO level.
        settings: NCCL_... variables kept, over all processes.
        unparsed: records that look like known ones and cannot be read.
        beyond_limits: facts that were left out for lack of room.
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

    def warn(self, code: str, example: str, limits: Limits) -> None:
        """Count a warning."""
        known = self.warnings.get(code)
        if known is not None:
            known.count += 1
        elif len(self.warnings) < limits.warning_codes:
            self.warnings[code] = WarningCount(1, example[:MAX_EXAMPLE])
        else:
            self.beyond_limits += 1
