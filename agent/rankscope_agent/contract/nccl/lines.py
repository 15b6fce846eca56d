"""The lines of NCCL 2.3 to 2.32 (and RCCL), each as a value: pure, from bytes to values.

`SCAN` finds every relevant record in a chunk. It begins with a literal, for which CPython's `re`
has a dedicated loop, many times faster than a pattern that begins with the host; the prefix is then
found by searching backwards. Formats follow NVIDIA/nccl src/debug.cc (prefixes), init.cc,
transport/net.cc, p2p.cc, shm.cc and coll_net.cc of the tags v2.3.5 to v2.30.7.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from rankscope_agent.contract.log_text.prefixes import (
    MPI_JOB,
    MPI_STREAM,
    PYTORCH,
    RANK,
    TAG_END,
)
from rankscope_agent.contract.nccl.facts import MAX_NAME, MAX_RANK, Edges, Transport, pair_code
from rankscope_agent.contract.nccl.info_lines import BEGINNINGS

MAX_EDGE_TRANSPORTS = 32
"""Transports distinguished per member: NCCL has fewer than ten, times GPUDirect and direction."""

MAX_KNOWN_TRANSPORTS = 1024
"""Cached meanings of transport texts: a node has fewer than a hundred (adapters times GPUDirect and
direction); a text has at most 256 bytes."""

MAX_KNOWN_ENDS = 256
"""Cached meanings of the ends of lines about communicators: one for each GPU of a node, event and
communicator; an end has at most 1024 bytes."""

MAX_PAIRS = 4096
"""Connections distinguished per member and transport: rings and trees make fewer than a hundred.
Further ones are counted again each time they are summed up."""

CONNECTION, INFO, WARNING, BARE = 1, 2, 3, 4
"""The groups of `SCAN`, exactly one of which takes part in a match: what was found."""

SCAN = re.compile(
    # from 2.28 on some lines begin with the rank, which they then repeat
    rb"NCCL(?: INFO (?:\[Rank \d{1,8}\] )?(?:"
    # CONNECTION, or (with Channel) the order of a ring; Ring 00 : 7 -> 0 -> 1 is not matched
    rb"(?:Channel \d+(?:/\d+)? : |Ring \d+ : (?=\S+ -> \S+ [^-]))([^\n]{1,256})|"
    rb"((?:" + BEGINNINGS + rb")[^\n]{0,1024})"  # INFO
    rb")| (WARN [^\n]{0,1024})"  # WARNING
    # BARE: the version line, and what PyTorch prints
    rb"|((?: version \d| error|\(SeqNum|\.cpp:\d+\]| watchdog)[^\n]{0,2048}))"
)

HOP_BYTES = 512
"""Bytes of text per jump from one letter to the next: a jump costs a quarter of a microsecond, in
which the pattern alone covers some 600 bytes."""

FIRST_HOPS = 8
"""Jumps allowed in any text, however short."""

SAMPLE_BYTES = 1024
"""Bytes at the beginning of a text that decide which letter is rarer: some lines. Counting takes a
nanosecond for four bytes; a wrong choice only costs time."""


def records(text: bytes) -> Iterator[re.Match[bytes]]:
    """Yield what `SCAN.finditer` yields, but faster in text with few lines of NCCL.

    `re` examines every byte; `bytes.find` for one character is memchr(3), which is some ten times
    faster. Of the letters in NCCL's name, `L` is rare in what most trainers print (`INFO` has an N,
    `CUDA` a C), and `C` where they print `Loss` and `LR`. In text that is full of both, the pattern
    continues alone.
    """
    find, match_at = text.find, SCAN.match
    letter, offset = b"L", 3
    if text.count(b"L", 0, SAMPLE_BYTES) > text.count(b"C", 0, SAMPLE_BYTES):
        letter, offset = b"C", 1
    index = offset - 1
    for _ in range(FIRST_HOPS + len(text) // HOP_BYTES):
        index = find(letter, index + 1)
        if index < 0:
            return
        found = match_at(text, index - offset)
        if found is not None:
            yield found
            index = found.end() + offset - 1
    yield from SCAN.finditer(text, index - offset + 1)


TOKEN = re.compile(rb"(?:^|[^\w.-])([\w.-]{1,255}):(\d{1,10}):(\d{1,10}) \[-?\d{1,10}\] $")
"""host:pid:tid [cudaDev] at the end of the text before `NCCL INFO` (debug.cc:330-355)."""

WARN_PREFIX = re.compile(
    rb"(?:^|[^\w.-])([\w.-]{1,255}):(\d{1,10}):(\d{1,10}) \[-?\d{1,10}\] [^\n]*$"
)
"""The same before `NCCL WARN`, where file, line and function in NCCL or a plugin follow."""

MPI_TAG = re.compile(MPI_JOB + rb"(" + RANK + rb")" + MPI_STREAM)
"""Open MPI's tag with a global rank."""

TORCH_TAG = re.compile(
    rb"^(?:[^\n]{0,200}\s)?" + PYTORCH + rb"(" + RANK + rb")" + TAG_END, re.MULTILINE
)
"""PyTorch's and torchrun's tag with a global rank."""

EVENT_END = re.compile(rb"(?<=- Init )(?:START|COMPLETE)")
"""The end of a line about a communicator, after which nothing can have been cut off."""

LEFT_OUT = b" [repeated "
"""Begins what Ray appends to a line that other processes printed as well."""

_COMM = re.compile(
    rb"(?:\w{1,40} )?comm (0x[0-9a-f]{1,16}) rank (\d{1,8})(?= |$)"
    rb"(?: n[rR]anks (\d{1,8})(?= ))?([^\n]*)"
)
_COMM_ID = re.compile(rb"commId (0x[0-9a-f]{1,16})(?= )")  # more follows, unless it is cut off
_PARENT = re.compile(
    rb"parent (0x[0-9a-f]{1,16})(?: (?:splitCount|childCount) (\d+))? color (-?\d+) key"
)
_NODES = re.compile(rb"nNodes (\d{1,7})(?= |$)(?:.* MNNVL (\d))?")
_GPU = re.compile(rb"busId ([0-9a-f]{1,16})(?= |$)")
_PHASE = re.compile(r"\b(total|kernels|alloc|bootstrap|allgathers|topo|graphs|connections|rest) ")
_TIMINGS = re.compile(r"Init timings[^:]*: rank (\d{1,8}) nranks (\d{1,8}) (total .*)")
_EDGE = re.compile(
    rb"(\d{1,8})(?:\[[0-9a-f]+\])? -> (\d{1,8})(?:\[[0-9a-f]+\])?\s*(?:\[(send|receive)\]\s*)?"
    rb" via (.*)",
    re.DOTALL,
)
_NET_TAIL = re.compile(
    rb"NET/([^/\n]{1,64})/\d+(?:\(\d+\))?(?P<gdr>/GDRDMA)?(?:\(PCI\))?(?:/Shared)?"
    rb"(?=[\s\"'`*\\,;<)\]]|$)"  # whatever quotes a line may append text
)
_LOCAL_TAIL = re.compile(
    rb"(P2P/(?:direct pointer|[\w/]+)(?:/read)?(?:/CE)?|SHM/[\w/-]{1,40}|direct shared memory)"
)
_RING = re.compile(rb"\s*(\d{1,8}(?:\s+\d{1,8})*)\s*$")
_CHANNEL_PREFIX = re.compile(rb"\d{1,4} : (?=\d)")
_HEADLESS = re.compile(r"((?:NET|P2P|SHM)/\S+)(?: \[(send|receive)\])?")
_COLLNET = re.compile(r"CollNet \d+/\d+ : (\d{1,8}) \[(send|receive)\] via COLLNET/([^/]+)/\d+(.*)")


class CommLine(NamedTuple):
    """A line about one rank of one communicator; what it lacks is None or empty.

    Args:
        event: START, COMPLETE, DESTROYED, or empty for a purely descriptive line.
        split: parent pointer, child count and colour of a communicator without its own id.
        gpu: PCI address of the rank's GPU, as NCCL prints it.
    """

    pointer: str
    rank: int
    nranks: int | None
    comm_id: str
    split: tuple[str, str, str] | None
    event: str
    nodes: int | None
    mnnvl: bool
    gpu: str


def parse_comm(text: bytes) -> CommLine | None:
    """Read a line about a communicator, even if cut off; None if it is another line or nonsense."""
    match = _COMM.match(text)
    if match is None:
        return None
    pointer, index, size, rest = match.groups()
    rank, nranks = int(index), int(size) if size else None
    if rank >= MAX_RANK or (nranks is not None and not rank < nranks <= MAX_RANK):
        return None
    return CommLine(pointer.decode(), rank, nranks, *_parse_rest(rest))


@lru_cache(maxsize=MAX_KNOWN_ENDS)
def _parse_rest(
    rest: bytes,
) -> tuple[str, tuple[str, str, str] | None, str, int | None, bool, str]:
    """Read the text after the ranks, which is the same for corresponding GPUs of all nodes."""
    # A search that cannot succeed costs more than a search for its keyword.
    comm_id = _COMM_ID.search(rest) if b" commId " in rest else None
    parent = _PARENT.search(rest) if b" parent " in rest else None
    nodes = _NODES.search(rest) if b" nNodes " in rest else None
    gpu = _GPU.search(rest) if b" busId " in rest else None
    return (
        comm_id[1].decode() if comm_id else "",
        _split(parent),
        _event(rest),
        int(nodes[1]) if nodes else None,
        bool(nodes and nodes[2] == b"1"),
        gpu[1].decode() if gpu else "",
    )


def _split(parent: re.Match[bytes] | None) -> tuple[str, str, str] | None:
    if parent is None:
        return None
    return parent[1].decode(), (parent[2] or b"").decode(), parent[3].decode()


def _event(rest: bytes) -> str:
    if b"Init START" in rest:
        return "START"
    if b"Init COMPLETE" in rest:
        return "COMPLETE"
    # `Abort COMPLETE` and `Destroy COMPLETE` have the same end but mean the opposite.
    return "DESTROYED" if b"Destroy " in rest or b"Abort " in rest else ""


def parse_timings(text: str) -> tuple[int, int, dict[str, float]] | None:
    """Read `Init timings`: rank, nranks and seconds by phase (from 2.22.3)."""
    match = _TIMINGS.match(text)
    if match is None:
        return None
    words = match[3].replace("(", " ").replace(")", " ").replace(",", " ").split()
    seconds = {
        name: float(value)
        for name, value in itertools.pairwise(words)
        if _PHASE.match(f"{name} ") and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value)
    }
    return int(match[1]), int(match[2]), seconds


@lru_cache(maxsize=MAX_KNOWN_TRANSPORTS)
def parse_transport(text: bytes, direction: bytes) -> Transport | None:
    """Read the text after `via ` in a connection's line; None if NCCL never prints such text."""
    net = _NET_TAIL.match(text)
    local = _LOCAL_TAIL.match(text)
    if net:
        name = "NET/" + net[1].decode(errors="replace")[:MAX_NAME]
        return Transport(name, net["gdr"] is not None, direction.decode())
    if local is None:
        return None
    name = local[1].decode(errors="replace")
    return Transport("SHM" if name == "direct shared memory" else name, False, direction.decode())


def connection_of(info: bytes) -> bytes | None:
    """Return the connection in a line that lacks its `Channel`; None if there is none.

    `NCCL INFO 0 : 3[3] -> 4[4] [send] via NET/IB/0` and `NCCL INFO 3[3] -> 4[4] via P2P/IPC`.
    """
    connection = _CHANNEL_PREFIX.sub(b"", info, count=1)
    return connection if _EDGE.match(connection) else None


def parse_headless(text: str) -> Iterator[Transport]:
    """Yield the transports of `0 : NET/IB/0/GDRDMA [receive] via NET/IB/0/GDRDMA [send]`."""
    for connection, direction in _HEADLESS.findall(text):
        transport = parse_transport(connection.encode(), direction.encode())
        if transport is not None:
            yield transport


def parse_collnet(text: str) -> tuple[int, Transport] | None:
    """Read `CollNet 00/0 : 1 [send] via COLLNET/SHARP/0/GDRDMA`: the rank and the transport."""
    match = _COLLNET.match(text)
    if match is None:
        return None
    name = f"COLLNET/{match[3][:MAX_NAME]}"
    return int(match[1]), Transport(name, "/GDRDMA" in match[4], match[2])


def sum_up(edges: Edges, limit: int = MAX_PAIRS) -> int:
    """Turn distinct edges into counts; return the number of texts that were not connections.

    Args:
        edges: as printed.
        limit: how many are remembered per transport, so that repetitions are recognised.
    """
    garbage = 0
    by_tail: dict[tuple[bytes, bytes], list[tuple[int, int]]] = {}
    for text in edges.distinct:
        match = _EDGE.match(text)
        if match is not None:
            source, target, direction, tail = match.groups(b"")
            by_tail.setdefault((tail, direction), []).append((int(source), int(target)))
        elif ring := _RING.match(text):
            size = len(ring[1].split())
            if size > 1 or text.startswith(b" "):  # padded in a ring, not in a truncated line
                edges.ring_size = max(edges.ring_size, size)
        elif not text.endswith(b"..."):  # the order of a ring, truncated at 128 characters
            garbage += 1
    edges.distinct = set()
    for (tail, direction), pairs in by_tail.items():
        transport = parse_transport(tail, direction)
        if transport is None or not count(edges, transport, pairs, limit):
            garbage += len(pairs)
    return garbage


def count(edges: Edges, transport: Transport, pairs: list[tuple[int, int]], limit: int) -> bool:
    """Count connections over a transport, each pair of ranks once; return True if there are any.

    Transports beyond the limit are not counted.
    """
    highest = max(map(max, pairs))
    if highest >= MAX_RANK:
        return False
    known = edges.pairs.get(transport)
    if known is None:
        if len(edges.pairs) >= MAX_EDGE_TRANSPORTS:
            return True
        known = edges.pairs[transport] = set()
    new = {pair_code(*pair) for pair in pairs}
    if known:
        new -= known
    edges.counts[transport] = edges.counts.get(transport, 0) + len(new)
    known.update(itertools.islice(new, max(0, limit - len(known))))
    edges.highest_rank = max(edges.highest_rank, highest)
    if len(edges.owners) < limit:
        own = 1 if transport.direction == "receive" else 0
        edges.owners.update([pair[own] for pair in pairs[:limit]])
    return True
