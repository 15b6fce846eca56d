"""NCCL logs of small jobs, line by line as NCCL 2.27 prints them."""

from __future__ import annotations

from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.contract.nccl.verdict import JobVerdict, judge
from whole_nccl_log import read_all

COMM_ID = "0x1d2c3b4a59687706"


def info(rank: int, text: str, *, host: str = "", pid: int = 0) -> str:
    """Return an INFO line of a rank, eight of which are on a host unless told otherwise."""
    where = host or f"gpu-{rank // 8:02d}"
    process = pid or 4000 + rank
    return f"{where}:{process}:{process + 70} [{rank % 8}] NCCL INFO {text}\n"


def comm(rank: int, nranks: int, event: str, comm_id: str = COMM_ID) -> str:
    """Return the text of Init START or COMPLETE."""
    who = f"ncclCommInitRank comm 0x55{rank:04x}0 rank {rank} nranks {nranks}"
    return (
        f"{who} cudaDev {rank % 8} nvmlDev {rank % 8} busId 1a000 commId {comm_id} - Init {event}"
    )


def edge(rank: int, peer: int, via: str, channel: int = 0) -> str:
    """Return the text of a connection that a rank sends on."""
    side = "[send] " if via.startswith("NET") else ""
    return f"Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {peer}[{peer % 8}] {side}via {via}"


def start(
    rank: int, nranks: int, via: str, *, network: str = "IB", extra: tuple[str, ...] = ()
) -> str:
    """Return a rank's whole start, with one connection to the next rank."""
    texts = (
        "Bootstrap: Using eth0:10.0.0.5<0>",
        *extra,
        f"Using network {network}",
        comm(rank, nranks, "START"),
        edge(rank, (rank + 1) % nranks, via),
        "16 coll channels, 16 collnet channels, 0 nvls channels, 32 p2p channels",
        comm(rank, nranks, "COMPLETE"),
    )
    return "".join(info(rank, text) for text in texts)


def facts_of(text: str | bytes) -> Facts:
    """Return what a log says."""
    return read_all([text if isinstance(text, bytes) else text.encode()])


def verdict_of(text: str | bytes) -> JobVerdict:
    """Return what a log proves."""
    return judge(facts_of(text))
