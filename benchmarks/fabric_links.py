"""Does `rankscope fabric-check` name the rank behind a slow link, and nobody among equals?

Four ranks, each in a network namespace with a link of 1 Gbit/s; one that is drawn at random has its
link behind a token bucket of 200 Mbit/s, for what it sends, receives, or both.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.running_jobs.launch import ForkServer, Links, send

import rankscope_analyzers
from rankscope_analyzers.demo.free_ports import free_port

RANKS = 4
RATE_MEGABITS = 1000.0
SLOWDOWN = 5.0
DIRECTIONS = ("out", "in", "both")
ROUNDS = 10
PATIENCE_SECONDS = 180.0
FLAGS = ("--json", "--sizes=64K,1M", "--link-size=2M", "--seconds=0.5", "--backend=gloo")


@dataclass(frozen=True, slots=True)
class Answer:
    """One check: the rank whose link was slow, None for none, and the ranks that were named."""

    slow: int | None
    direction: str
    named: frozenset[int]

    @property
    def right(self) -> bool:
        """Return True if exactly the slow rank was named, or nobody if none was slow."""
        return self.named == ({self.slow} if self.slow is not None else set())


def measure(seed: int = 1) -> Sequence[Answer]:
    """Check randomly drawn slow links, alternating with equal ones."""
    drawn = random.Random(seed)  # noqa: S311 - draws cases
    answers = []
    with ForkServer(probed=False) as server:
        for _ in range(ROUNDS):
            slow, direction = drawn.randrange(RANKS), drawn.choice(DIRECTIONS)
            answers.append(answer(server, slow, direction))
            answers.append(answer(server, None, ""))
    return answers


def answer(server: ForkServer, slow: int | None, direction: str) -> Answer:
    """Check four ranks, with the link of one of them slow."""
    found = checked(server, slow, direction)
    named = {rank for fault in found["faults"] for rank in fault["ranks"]}
    return Answer(slow, direction, frozenset(named))


def checked(
    server: ForkServer,
    slow: int | None,
    direction: str,
    rate_megabits: float = RATE_MEGABITS,
    flags: Sequence[str] = FLAGS,
) -> Mapping[str, Any]:
    """Return the JSON that the command prints.

    Args:
        server: that forks ranks.
        slow: the rank whose link is slow, None for none.
        direction: in which it is.
        rate_megabits: of all other links.
        flags: of the command.

    Raises:
        RuntimeError: it prints none in time.
    """
    with (
        tempfile.TemporaryDirectory() as name,
        Links(f"fl{os.getpid()}", RANKS, rate_megabits) as links,
    ):
        if slow is not None:
            links.slow(slow, SLOWDOWN, direction)
        folder, port = Path(name), free_port()
        pids = [_start(server, links, rank, port, folder, flags) for rank in range(RANKS)]
        try:
            return _awaited(folder / "0.out")
        finally:
            send(pids, signal.SIGKILL)


def _start(
    server: ForkServer, links: Links, rank: int, port: int, folder: Path, flags: Sequence[str]
) -> int:
    environment = {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": links.address(0),
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "eth0",
        "RANKSCOPE_NODE_NAME": f"node-{rank}",
    }
    return server.start(
        Path(rankscope_analyzers.__file__).parent / "__main__.py",
        ["fabric-check", *flags],
        environment,
        folder / f"{rank}.out",
        network=links.path(rank),
    )


def _awaited(output: Path) -> Mapping[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        text = output.read_text() if output.exists() else ""
        if text.rstrip().endswith("}"):
            return dict(json.loads(text[text.index("{") :]))
        time.sleep(0.05)
    raise RuntimeError("; ".join(path.read_text() for path in sorted(output.parent.glob("*.out"))))


def report(answers: Sequence[Answer]) -> str:
    """Return the results as text."""
    slow = [one for one in answers if one.slow is not None]
    equal = [one for one in answers if one.slow is None]
    lines = [
        f"fabric-check, {RANKS} ranks of gloo at {RATE_MEGABITS:.0f} Mbit/s:",
        f"  a rank at 1/{SLOWDOWN:g} named: {sum(one.right for one in slow)} of {len(slow)}",
        f"  equal ranks, nobody named: {sum(one.right for one in equal)} of {len(equal)}",
    ]
    lines += [
        f"  wrong: rank {one.slow} ({one.direction or 'none'}), named {sorted(one.named)}"
        for one in answers
        if not one.right
    ]
    return "\n".join(lines)
