"""Puts the members of each communicator together, from facts that processes gave one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.nccl.facts import MAX_RANK, Edges, Facts, Member, Transport


@dataclass(frozen=True, slots=True)
class Communicator:
    """One communicator as its members' processes describe it.

    Args:
        name: its commId where NCCL prints one, else what comes nearest.
        linked: the name is certain; else members of several communicators may be in here.
        edges: connections by transport, those of threads that must be its own included.
        local_pairs: pairs of ranks connected without a network.
    """

    name: str
    linked: bool
    members: tuple[Member, ...]
    edges: Mapping[Transport, int]
    local_pairs: frozenset[tuple[int, int]]

    @property
    def nranks(self) -> int | None:
        """Its size, the largest that a member claims; None where none was printed in whole."""
        return max((m.nranks for m in self.members if m.nranks is not None), default=None)

    @property
    def nodes(self) -> int | None:
        """On how many nodes NCCL says it is (2.20.3 on); NVLink domains count as one."""
        return max((m.nodes for m in self.members if m.nodes is not None), default=None)

    @property
    def nodes_seen(self) -> int | None:
        """On how many nodes it is: what NCCL says, else the hosts of its ranks if all are known."""
        whole = len(self.members) == len(self.ranks) == self.nranks
        named = whole and all(member.process.host for member in self.members)
        return self.nodes or (len(self.hosts) if named else None)

    @property
    def mnnvl(self) -> bool:
        """Return True if NVLink reaches over nodes."""
        return any(m.mnnvl for m in self.members) or any(t.is_fabric for t in self.edges)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that are known to be in it."""
        return tuple(sorted({m.rank for m in self.members}))

    @property
    def complete_ranks(self) -> tuple[int, ...]:
        """Ranks that finished their initialisation."""
        return tuple(sorted({m.rank for m in self.members if m.complete}))

    @property
    def stuck_ranks(self) -> tuple[int, ...]:
        """Ranks that began their initialisation and did not finish it by the end of the log."""
        complete = set(self.complete_ranks)
        return tuple(sorted({m.rank for m in self.members if m.started} - complete))

    @property
    def channels(self) -> tuple[int, ...]:
        """Numbers of channels for collectives that its members print; there should be one."""
        known = {m.coll_channels for m in self.members if m.coll_channels is not None}
        return tuple(sorted(known))

    @property
    def comparable(self) -> bool:
        """Return True if its name is certain or no rank occurs twice: its members are of one."""
        return self.linked or len(self.members) == len(self.ranks)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts of its known members."""
        return tuple(sorted({m.process.host for m in self.members if m.process.host}))

    @property
    def networks(self) -> tuple[str, ...]:
        """Networks that its members selected."""
        return tuple(sorted({name for m in self.members if (name := network_of(m))}))


def network_of(member: Member) -> str:
    """Return the network a member's communicator uses, as printed; empty if it was not."""
    return member.network or member.process.network


def communicators(facts: Facts) -> tuple[tuple[Communicator, ...], tuple[Edges, ...]]:
    """Return the communicators, and the connections that belong to none of them for certain."""
    members: dict[str, list[Member]] = defaultdict(list)
    by_process: dict[tuple[str, int], list[Member]] = defaultdict(list)
    for member in facts.all_members():
        members[member.group].append(member)
        by_process[member.process.host, member.process.pid].append(member)
    lazy: dict[str, list[Edges]] = defaultdict(list)
    loose = []
    for process, several in facts.loose_edges.items():
        for edges in several:
            owner = _owner(edges, by_process.get(process, ()))
            if owner is not None:
                lazy[owner.group].append(edges)
            elif edges.counts or edges.ring_size:
                loose.append(edges)
    made = (_communicator(name, found, lazy[name]) for name, found in members.items())
    return tuple(made), tuple(loose)


def _owner(edges: Edges, members: Sequence[Member]) -> Member | None:
    """Return the member whose connections these must be: the only one of its process that fits.

    Since 2.22.3 connections are made when first used, by threads of their own.
    """
    if len(edges.owners) != 1:
        return None
    (rank,) = edges.owners
    fitting = [m for m in members if m.rank == rank and edges.highest_rank < (m.nranks or 0)]
    return fitting[0] if len(fitting) == 1 else None


def _communicator(name: str, members: Sequence[Member], lazy: Iterable[Edges]) -> Communicator:
    edges: Counter[Transport] = Counter()
    pairs: dict[Transport, set[int]] = defaultdict(set)
    for part in (*(m.edges for m in members), *lazy):
        for transport, codes in part.pairs.items():
            # A member's lazy connections repeat those of its start; beyond a limit none are told
            # apart.
            edges[transport] += part.counts[transport] - len(codes & pairs[transport])
            pairs[transport] |= codes
    linked = all(member.linked for member in members)
    return Communicator(name, linked, tuple(members), edges, local_pairs(pairs))


def local_pairs(pairs: Mapping[Transport, Iterable[int]]) -> frozenset[tuple[int, int]]:
    """Return the pairs of ranks connected without a network."""
    local = (codes for transport, codes in pairs.items() if not transport.is_net)
    return frozenset(divmod(code, MAX_RANK) for codes in local for code in codes)


def connects_all(pairs: Iterable[tuple[int, int]], nranks: int | None) -> bool:
    """Return True if pairs of ranks connect all ranks of a communicator with one another."""
    neighbours: dict[int, set[int]] = defaultdict(set)
    for source, target in pairs:
        neighbours[source].add(target)
        neighbours[target].add(source)
    if nranks is None or len(neighbours) != nranks:
        return False
    reached: set[int] = set()
    waiting = [next(iter(neighbours))]
    while waiting:
        rank = waiting.pop()
        if rank not in reached:
            reached.add(rank)
            waiting.extend(neighbours[rank] - reached)
    return len(reached) == nranks
