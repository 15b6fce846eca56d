"""Jobs of several ranks that tests start, signal and end: forked, or by a forked torchrun.

A forked job saves each rank the seconds that importing torch takes. From then on its ranks do what
torchrun's do, which are fresh processes, and an agent sees the same of them.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.running_jobs.launch import send

from probe_jobs.nurseries import Nursery, together

LOOPBACK = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


class ForkedJob:
    """A script whose ranks a process forks that has imported torch with the probe.

    Its `ranks` are their process ids, or torchrun's alone.

    Args:
        nursery: the process that forks them.
        script: what each rank runs.
        ranks: how many.
        variables: further environment variables.
        output: the file that all ranks print to.
        torchrun: True if torchrun is what is forked, and starts the ranks as fresh processes.
    """

    def __init__(
        self,
        nursery: Nursery,
        script: Path,
        ranks: int,
        variables: Mapping[str, str],
        output: Path,
        torchrun: bool = False,
    ) -> None:
        self.nursery = nursery
        command, shared = [str(script)], LOOPBACK | dict(variables)
        places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        if torchrun:
            command = ["torchrun.py", "--standalone", f"--nproc-per-node={ranks}", *command]
            places = [{}]
        else:
            shared = together(ranks) | {"LOCAL_WORLD_SIZE": str(ranks)} | shared
        self.ranks = [nursery.start(command, shared | place, output).pid for place in places]

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
