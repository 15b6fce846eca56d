"""Files that neither a probe nor torch writes: hostile rings and dumps, and damaged states."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.chaos.chain import Chain

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import flight_servers
from flight_servers import recorder
from ring_writer import PAGE, RingWriter, header_page, record_bytes

HOSTILE_RINGS = 24
HOSTILE_DUMPS, DUMPER_PID = 6, 9100


def cut(content: bytes, random: Random) -> bytes:
    """Return the beginning of some bytes."""
    return content[: random.randrange(len(content) + 1)]


def corrupted(content: bytes, random: Random) -> bytes:
    """Return bytes with some of them changed."""
    damaged = bytearray(content)
    for _ in range(1 + len(damaged) // 64):
        if damaged:
            damaged[random.randrange(len(damaged))] = random.randrange(256)
    return bytes(damaged)


def _hostile_ring(random: Random, number: int) -> bytes:
    """Return a ring that no probe writes: truncated, noise, or with damaged records or header."""
    whole = header_page(rank=number, world_size=64, job_id="hostile", pid=number + 1)
    whole += b"".join(record_bytes(seq) for seq in range(1, 17))
    kind = random.randrange(4)
    if kind == 0:
        return random.randbytes(random.randrange(1, 2 * PAGE))
    if kind == 1:
        return cut(whole, random)
    damaged = bytearray(whole)
    first, behind = (0, 64) if kind == 2 else (PAGE, len(whole))
    for _ in range(16):
        damaged[random.randrange(first, behind)] = random.randrange(256)
    return bytes(damaged)


@contextlib.contextmanager
def hostile_rings(chain: Chain, random: Random) -> Iterator[None]:
    """Put rings of a hostile pod, links and a pipe among the others."""
    folder = chain.rings.folder
    paths = [folder / f"{number + 1}-1.ring" for number in range(HOSTILE_RINGS)]
    for number, path in enumerate(paths):
        path.write_bytes(_hostile_ring(random, number))
    links = [folder / "9000-1.ring", folder / "9001-1.ring"]
    for link, target in zip(links, (folder, chain.folder / "agent.log"), strict=True):
        link.symlink_to(target)
    os.mkfifo(folder / "9002-1.ring")
    try:
        yield
    finally:
        for path in (*paths, *links, folder / "9002-1.ring"):
            path.unlink(missing_ok=True)  # the agent removes rings that no process has


@contextlib.contextmanager
def hostile_dumps(chain: Chain, random: Random) -> Iterator[None]:
    """Have ranks whose records lack waits, and worker servers with dumps that torch does not write.

    Raises:
        RuntimeError: the agent requested none of them.
    """
    asked: list[list[bytes]] = []
    with contextlib.ExitStack() as stack:
        for rank in range(HOSTILE_DUMPS):
            name, now = f"{DUMPER_PID + rank}-1", time.time_ns()
            about = {"rank": rank, "world_size": HOSTILE_DUMPS, "job_id": "hostile-dumps"}
            ring = RingWriter(
                chain.rings.folder,
                f"{name}.ring",
                **about,
                pid=DUMPER_PID + rank,
                created_unix_ns=now,
            )
            stack.callback(ring.path.unlink)
            stack.callback(ring.end)
            times = {"data_ns": -1, "compute_ns": -1, "sync_ns": -1}
            ring.step(start_unix_ns=now, step_ns=1000, flags=0, **times)
            path, body = chain.rings.folder / f"{name}.sock", _hostile_dump(random)
            asked.append(stack.enter_context(flight_servers.serving(path, recorder(body))))
        yield
    if not any(asked):
        raise RuntimeError("no dump was asked for")


def _hostile_dump(random: Random) -> bytes:
    """Return a dump that is cut off, damaged, nested too deeply, too large or of calls."""
    entries = [flight_servers.entry(number, time.time_ns()) for number in range(1, 200)]
    whole = flight_servers.dump(*entries)
    kinds = (
        lambda: cut(whole, random),
        lambda: corrupted(whole, random),
        lambda: b'{"version": "2.10", "entries": ' + b"[" * 200_000,
        lambda: flight_servers.dump(*entries * 400),
        lambda: b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    )
    return random.choice(kinds)()
