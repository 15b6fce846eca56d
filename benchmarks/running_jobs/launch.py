"""Starts the ranks of a job: forked, in network namespaces and cgroups if a case requires that."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

SCRIPTS = Path(__file__).parent / "scripts"
PROBE = Path(__file__).parents[2] / "agent" / "probe"
CPU_V1, CPU_V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
PERIOD_MICROSECONDS = 100_000
"""Default of cgroups: a quota applies to each tenth of a second."""


class ForkServer:
    """A process that has imported torch, with the probe, and forks ranks.

    Args:
        probed: False if it has no probe until `load_probe`.
    """

    def __init__(self, *, probed: bool = True) -> None:
        loading = {} if probed else {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPTS / "forkserver.py")],
            env={**os.environ, "PYTHONPATH": str(PROBE), "OMP_NUM_THREADS": "1", **loading},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()

    def load_probe(self) -> None:
        """Load the probe, so that all ranks that are forked from now on have it."""
        self._answer({"probe": True})

    def fork(
        self,
        loop: str,
        environment: Mapping[str, str],
        output: Path,
        *,
        processes: str = "",
        network: str = "",
    ) -> int:
        """Start a loop as one rank; return its process id."""
        return self.start(
            SCRIPTS / "loops.py", [loop], environment, output, processes=processes, network=network
        )

    def start(
        self,
        script: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: Path,
        *,
        processes: str = "",
        network: str = "",
    ) -> int:
        """Start a script as one rank; return its process id."""
        order = {
            "script": str(script),
            "arguments": list(arguments),
            "output": str(output),
            "environment": dict(environment),
            "processes": processes,
            "network": network,
        }
        return int(self._answer(order))

    def exit_code(self, pid: int) -> int | None:
        """Return how a rank ended, None while it runs; negative: the signal that ended it."""
        code: int | None = json.loads(self._answer({"ended": pid}))
        return code

    def _answer(self, order: Mapping[str, object]) -> str:
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the fork server has no pipes")
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return self.process.stdout.readline()


def send(pids: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Quota:
    """A cgroup whose processes may use a fraction of one CPU; without a limit at first."""

    def __init__(self, folder: Path, limit: str, unlimited: str) -> None:
        self.folder, self._limit = folder, limit
        self.folder.mkdir()
        (folder / limit).write_text(unlimited)

    @property
    def processes(self) -> str:
        """Return the file that a process adds itself to."""
        return str(self.folder / "cgroup.procs")

    def limit(self, share: float) -> None:
        """Limit the processes to a fraction of one CPU."""
        quota = int(share * PERIOD_MICROSECONDS)
        text = f"{quota} {PERIOD_MICROSECONDS}" if self._limit == "cpu.max" else str(quota)
        (self.folder / self._limit).write_text(text)


@contextlib.contextmanager
def quota(name: str) -> Iterator[Quota]:
    """Create a cgroup; remove it when its processes have ended.

    Raises:
        OSError: there is no CPU controller that may be used here.
    """
    if (CPU_V1 / "cpu.cfs_quota_us").exists():
        made = Quota(CPU_V1 / name, "cpu.cfs_quota_us", "-1")
    else:
        made = Quota(CPU_V2 / name, "cpu.max", "max")
    try:
        yield made
    finally:
        made.folder.rmdir()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


class Links:
    """Network namespaces, one for each rank, joined by a bridge in one more.

    Args:
        name: prefix of their names.
        ranks: how many.
        rate: of every link in each direction, in Mbit/s.
    """

    def __init__(self, name: str, ranks: int, rate: float) -> None:
        self.name, self.ranks, self.rate = name, ranks, rate

    def __enter__(self) -> Links:
        try:
            self._make()
        except subprocess.CalledProcessError:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def path(self, rank: int) -> str:
        """Return the namespace of a rank."""
        return f"/var/run/netns/{self.name}-{rank}"

    @staticmethod
    def address(rank: int) -> str:
        """Return the address of a rank."""
        return f"10.77.0.{rank + 1}"

    def slow(self, rank: int, factor: float, direction: str) -> None:
        """Slow a rank's link down, for what it sends (out), receives (in), or both."""
        if direction in {"out", "both"}:
            self._shape(f"{self.name}-{rank}", "eth0", self.rate / factor)
        if direction in {"in", "both"}:
            self._shape(f"{self.name}-sw", f"port{rank}", self.rate / factor)

    def _make(self) -> None:
        switch = f"{self.name}-sw"
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "br0", "up")
        for rank in range(self.ranks):
            own, port = f"{self.name}-{rank}", f"port{rank}"
            _run("ip", "netns", "add", own)
            pair = ("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", own)
            _run("ip", "-n", switch, *pair)
            _run("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
            _run("ip", "-n", own, "addr", "add", f"{self.address(rank)}/24", "dev", "eth0")
            _run("ip", "-n", own, "link", "set", "eth0", "up")
            _run("ip", "-n", own, "link", "set", "lo", "up")
            self.slow(rank, 1.0, "both")

    @staticmethod
    def _shape(namespace: str, device: str, rate: float) -> None:
        limit = ("rate", f"{rate:.3f}mbit", "burst", "64kb", "latency", "200ms")
        _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", *limit)

    def _remove(self) -> None:
        for end in ("sw", *map(str, range(self.ranks))):
            subprocess.run(
                ["ip", "netns", "del", f"{self.name}-{end}"], check=False, capture_output=True
            )
