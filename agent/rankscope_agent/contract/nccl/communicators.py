"""Combines the members of each communicator from facts that processes reported one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.nccl.facts import MAX_RANK, Edges, Facts, Member, Transport


@dataclass(frozen=True, slots=True)
class Communicator:
    """One communicator as described by the processes of its members.

    Args:
        name: its commId if NCCL prints one, else the closest equivalent.
        linked: whether the name is certain; otherwise several communicators may be mixed.
        edges: connections by transport, including those of threads that must belong to it.
        local_pairs: pairs of ranks connected without a network.
    """

    name: str
    linked: bool
    members: tuple[Member, ...]
    edges: Mapping[Transport, int]
    local_pairs: frozenset[tuple[int, int]]

    @property
    def nranks(self) -> int | None:
        """Its size, the largest that a member states; None if none was printed in full."""
        return max((m.nranks for m in self.members if m.nranks is not None), default=None)

    @property
    def nodes(self) -> int | None:
        """Its number of nodes according to NCCL (from 2.20.3); an NVLink domain counts as one."""
        return max((m.nodes for m in self.members if m.nodes is not None), default=None)

    @property
    def nodes_seen(self) -> int | None:
        """Its number of nodes: as printed by NCCL, else by the hosts of its ranks if all known."""
        whole = len(self.members) == len(self.ranks) == self.nranks
        named = whole and all(member.process.host for member in self.members)
        return self.nodes or (len(self.hosts) if named else None)

    @property
    def mnnvl(self) -> bool:
        """Return True if NVLink spans several nodes."""
        return any(m.mnnvl for m in self.members) or any(t.is_fabric for t in self.edges)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks known to belong to it."""
        return tuple(sorted({m.rank for m in self.members}))

    @property
    def complete_ranks(self) -> tuple[int, ...]:
        """Ranks that completed their initialisation."""
        return tuple(sorted({m.rank for m in self.members if m.complete}))

    @property
    def stuck_ranks(self) -> tuple[int, ...]:
        """Ranks that began their initialisation and did not complete it by the end of the log."""
        complete = set(self.complete_ranks)
        return tuple(sorted({m.rank for m in self.members if m.started} - complete))

    @property
    def channels(self) -> tuple[int, ...]:
        """The channel counts for collectives that its members print; there should be only one."""
        known = {m.coll_channels for m in self.members if m.coll_channels is not None}
        return tuple(sorted(known))

    @property
    def comparable(self) -> bool:
        """Return True if its name is certain or its ranks are unique: it is one communicator."""
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
    """Return the network of a member's communicator, as printed; empty if not printed."""
    return member.network or member.process.network


def communicators(facts: Facts) -> tuple[tuple[Communicator, ...], tuple[Edges, ...]]:
    """Return the communicators, and the connections that cannot be assigned to any of them."""
    members: dict[str, list[Member]] = defaultdict(list)
    by_rank: dict[tuple[str, int, int], list[Member]] = defaultdict(list)
    for member in facts.all_members():
        members[member.group].append(member)
        by_rank[member.process.host, member.process.pid, member.rank].append(member)
    for several in by_rank.values():
        several.sort(key=_size, reverse=True)
    lazy: dict[str, list[Edges]] = defaultdict(list)
    loose = []
    for process, threads in facts.loose_edges.items():
        for edges in threads:
            owner = _owner(edges, process, by_rank)
            if owner is not None:
                lazy[owner.group].append(edges)
            elif edges.counts or edges.ring_size:
                loose.append(edges)
    made = (_communicator(name, found, lazy[name]) for name, found in members.items())
    return tuple(made), tuple(loose)


def _owner(
    edges: Edges,
    process: tuple[str, int],
    by_rank: Mapping[tuple[str, int, int], Sequence[Member]],
) -> Member | None:
    """Return the member that must own these connections: the only one that is large enough.

    Since 2.22.3 connections are made on first use, by separate threads.

    Args:
        edges: connections that a thread printed.
        process: the thread's.
        by_rank: the members by process and rank, those of the largest communicators first.
    """
    if len(edges.owners) != 1:
        return None
    (rank,) = edges.owners
    # If the second largest is too small, so are all others, of which there may be thousands.
    largest = by_rank.get((*process, rank), ())[:2]
    fitting = [member for member in largest if edges.highest_rank < _size(member)]
    return fitting[0] if len(fitting) == 1 else None


def _size(member: Member) -> int:
    return member.nranks or 0


def _communicator(name: str, members: Sequence[Member], lazy: Iterable[Edges]) -> Communicator:
    edges: Counter[Transport] = Counter()
    pairs: dict[Transport, set[int]] = defaultdict(set)
    for part in (*(m.edges for m in members), *lazy):
        for transport, codes in part.pairs.items():
            # A member's lazy connections repeat those of its start; above a limit they are not
            # deduplicated.
            edges[transport] += part.counts[transport] - len(codes & pairs[transport])
            pairs[transport] |= codes
    linked = all(member.linked for member in members)
    return Communicator(name, linked, tuple(members), edges, local_pairs(pairs))


def local_pairs(pairs: Mapping[Transport, Iterable[int]]) -> frozenset[tuple[int, int]]:
    """Return the pairs of ranks connected without a network."""
    local = (codes for transport, codes in pairs.items() if not transport.is_net)
    return frozenset(divmod(code, MAX_RANK) for codes in local for code in codes)


def connects_all(pairs: Iterable[tuple[int, int]], nranks: int | None) -> bool:
    """Return True if the pairs connect all ranks of a communicator, directly or indirectly."""
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
