"""Jobs of real ranks under the probe, and what they leave behind: exit codes, files, rings."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.running_jobs.launch import ForkServer, send

from rankscope_analyzers.demo.free_ports import free_port

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from ring_writer import HEADER, PAGE, RECORD

SCRIPT = Path(__file__).with_name("training.py")
SHORT_RANKS, SHORT_STEPS, SHORT_MILLISECONDS = 2, 80, 30
LONG, LONG_RANKS, LONG_SLOW, LONG_STEPS = "chaos-long", 3, 1, 100_000_000
NOBODY = -1
HEADER_CAPACITY, HEADER_RANK = 5, 10
"""Fields of a ring's header, by their order in tests/ring_writer.py."""


def _variables(job: str, ranks: int, rings: Path) -> dict[str, str]:
    return {
        "TORCHELASTIC_RUN_ID": job,
        "RANKSCOPE_RING_DIR": str(rings),
        "RANKSCOPE_NODE_NAME": "chaos",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


class Job:
    """Ranks that a fork server started.

    Args:
        server: the process that forks them.
        folder: directory for the job's files; it is created.
        rings: directory that their probes write rings to.
        ranks: how many.
        steps: after which it ends.
        slow: the rank that computes longer.
    """

    def __init__(
        self,
        server: ForkServer,
        folder: Path,
        rings: Path,
        *,
        ranks: int = SHORT_RANKS,
        steps: int = SHORT_STEPS,
        slow: int = NOBODY,
    ) -> None:
        folder.mkdir(parents=True)
        self.name, self.folder, self.rings = folder.name, folder, rings
        self._server = server
        shared = _variables(self.name, ranks, rings)
        arguments = [str(folder), str(steps), str(SHORT_MILLISECONDS), str(slow)]
        self.pids = [
            server.start(
                SCRIPT,
                arguments,
                shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                folder / "output",
            )
            for rank in range(ranks)
        ]
        (folder / "pids").write_text(" ".join(map(str, self.pids)))

    def wait(self, seconds: float) -> tuple[int | None, ...]:
        """Return the exit codes of the ranks; None of one that does not end in time."""
        deadline = time.monotonic() + seconds
        while True:
            codes = tuple(self._server.exit_code(pid) for pid in self.pids)
            # A rank whose peer has died waits for it; waiting with it shows nothing.
            if None not in codes or any(codes) or time.monotonic() > deadline:
                return codes
            time.sleep(0.1)

    def kill(self) -> None:
        """End ranks that still run, such as the peers of one that has died."""
        send(self._running(), signal.SIGKILL)

    def end(self, seconds: float) -> tuple[int | None, ...]:
        """Let it end after a step; return the exit codes of its ranks."""
        send(self._running(), signal.SIGCONT)
        send(self._running(), signal.SIGTERM)
        codes = self.wait(seconds)
        self.kill()
        return codes

    def _running(self) -> list[int]:
        return [pid for pid in self.pids if self._server.exit_code(pid) is None]

    def files(self) -> Mapping[str, bytes]:
        """Return what its ranks wrote, by name."""
        return files_in(self.folder)

    def written(self) -> Mapping[int, int]:
        """Return how many records each rank's ring has counted, of those that have a ring."""
        counts = {}
        for pid in self.pids:
            for ring in self.rings.glob(f"{pid}-*.ring"):
                rank, newest = counter_of(ring.read_bytes())
                counts[rank] = newest
        return counts


def counter_of(ring: bytes) -> tuple[int, int]:
    """Return a ring's rank and the number of its newest record, without the agent's code."""
    header = HEADER.unpack_from(ring)
    slots = memoryview(ring)[PAGE : PAGE + header[HEADER_CAPACITY] * RECORD.size]
    # A record begins with its number; to unpack all 65,536 of them takes ten times as long.
    return header[HEADER_RANK], max(slots.cast("Q")[:: RECORD.size // 8])


def files_in(folder: Path) -> Mapping[str, bytes]:
    """Return the weights in a directory, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("weights-*"))}


@contextlib.contextmanager
def unprobed(folder: Path, server: ForkServer | None = None) -> Iterator[tuple[ForkServer, Job]]:
    """Start a short job without the probe, whose files all other jobs must reproduce.

    Args:
        folder: for the job's files.
        server: forks its ranks, and has no probe yet; default: a new one.

    Yields:
        What forks these other jobs, with the probe, and the first job.
    """
    with server or ForkServer(probed=False) as ranks:
        first = Job(ranks, folder / "jobs" / "reference", folder)
        ranks.load_probe()
        try:
            yield ranks, first
        finally:
            first.kill()
