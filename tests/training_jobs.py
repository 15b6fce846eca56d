"""Jobs of several ranks that tests start, signal and end: by torchrun, or forked.

A forked job saves each rank the seconds that importing torch takes. From then on its ranks do what
torchrun's do, and an agent sees the same of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.running_jobs.launch import send

from probe_jobs.nurseries import Nursery, together
from rankscope_analyzers.demo.probe_folder import probe_folder

LOOPBACK = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


class TorchrunJob:
    """A script under torchrun, in a session of its own."""

    def __init__(self, script: Path, ranks: int, variables: Mapping[str, str]) -> None:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        self.launcher = subprocess.Popen(
            [*launch, f"--nproc-per-node={ranks}", str(script)],
            env=os.environ | {"PYTHONPATH": str(probe_folder())} | LOOPBACK | variables,
            start_new_session=True,
        )

    @property
    def ranks(self) -> list[int]:
        """The process ids of its ranks, by rank."""
        found: dict[int, int] = {}
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.launcher.pid:
                    entries = (process / "environ").read_bytes().split(b"\0")
                    (rank,) = (int(one[5:]) for one in entries if one.startswith(b"RANK="))
                    found[rank] = int(process.name)
        return [found[rank] for rank in sorted(found)]

    def poll(self) -> int | None:
        """Return torchrun's exit code, None while it runs."""
        return self.launcher.poll()

    def wait(self, timeout: float) -> int:
        """Wait until it ends and return the exit code."""
        return self.launcher.wait(timeout)

    def end(self, timeout: float) -> None:
        """End what is left of it."""
        if self.poll() is None:
            send(self.ranks, signal.SIGCONT)
            os.killpg(self.launcher.pid, signal.SIGTERM)
        self.wait(timeout)


class ForkedJob:
    """A script whose ranks a process forks that has imported torch with the probe.

    Args:
        nursery: the process that forks them.
        script: what each rank runs.
        ranks: how many.
        variables: further environment variables.
        output: the file that all ranks print to.
    """

    def __init__(
        self,
        nursery: Nursery,
        script: Path,
        ranks: int,
        variables: Mapping[str, str],
        output: Path,
    ) -> None:
        self.nursery = nursery
        shared = together(ranks) | {"LOCAL_WORLD_SIZE": str(ranks)} | LOOPBACK | dict(variables)
        places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        self.ranks = [nursery.start([str(script)], shared | place, output).pid for place in places]

    def poll(self) -> int | None:
        """Return 0 if all ranks ended well, 1 if all ended, None while one runs."""
        codes = self.nursery.exit_codes(*self.ranks)
        return None if None in codes else int(any(codes))

    def wait(self, timeout: float) -> int:
        """Wait until all ranks have ended and return what `poll` does."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("ranks of a forked job", timeout)
            time.sleep(0.05)
        return code

    def end(self, timeout: float) -> None:
        """End the ranks that run."""
        codes = self.nursery.exit_codes(*self.ranks)
        running = [rank for rank, code in zip(self.ranks, codes, strict=True) if code is None]
        send(running, signal.SIGCONT)
        send(running, signal.SIGTERM)
        self.wait(timeout)
