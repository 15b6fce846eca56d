"""How often the rank that holds up a real job is named: faults at random ranks, on gloo.

Each run is a job under torchrun with an agent. It is diagnosed as a user would do it (`rankscope
diagnose --json`), with `HANG_AFTER`. A run counts if the verdict is a hang (or that the job is
over, if gloo raises or a rank is killed) and names the rank, or, if nobody is to blame, names
nobody and lists the ranks and their collectives; and if a second diagnosis gives the same.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.agents import agents_over

SCRIPT = Path(__file__).parents[1] / "tests" / "foreign_jobs" / "hanging.py"
PROBE = Path(__file__).parents[1] / "agent" / "probe"
RANKS = 4
SIZES = {"pair": 2}
"""Ranks of the job, if they are not four."""

NOTHING: Mapping[str, str] = {}
HANG_AFTER = "10s"
FIRST_STEP_HANG_AFTER = "2s"
"""A first step is given ten times as long."""

RUN_SECONDS = 180.0
LOOK_SECONDS = 1.0
SEED = 24
NOBODY = ("groups", "pair", "again")
"""Faults whose culprit nobody can determine."""

RAISES = ("size",)
"""Faults that gloo ends by itself in any rank: what counts is that the first to end is reported."""

ENDS = ("killed", "raises", *RAISES)
"""Faults that end the job, and which are in its logs too."""

BEFORE_STEPS = ("first", "absent", "again")
"""Faults before a first step of the job, or of its second attempt."""

MORE_LOOKS = 2
"""How often a hung job is diagnosed again."""

HEALTHY = ("slow-first", "checkpoint", "work", "evaluation", "exchange", "ended", "scaled")
"""Jobs that make no steps for 25 s, or no longer, and do not hang: a long first step, a checkpoint
of one rank, unmarked work of one rank, an evaluation, other collectives, the end of the program,
SIGTERM to all."""

HEALTHY_SECONDS = 50.0
"""Seconds that each of them is watched from when its ranks are seen: until well after its pause."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the fault, its rank, and the report on it.

    Args:
        right: True if it counts.
        seconds: from the last step, or the job's end, to the verdict; None if it never came.
        looks: of a healthy job, from the first that knew its steps on; of a hung one those after
            the first report.
        blind: how many of these knew no step, or did not report it.
    """

    fault: str
    rank: int
    right: bool
    seconds: float | None
    sentence: str
    looks: int = 0
    blind: int = 0


FAULTS = (
    *("never", "loader", "stopped", "operation", "first", "absent", "groups", "pair", "again"),
    *("killed", "raises", "size"),
)


def measure(runs: int = 10, faults: Sequence[str] = FAULTS, seed: int = SEED) -> list[Run]:
    """Run each fault `runs` times, with a new random rank each time."""
    draw = random.Random(seed)  # noqa: S311 - not a secret
    return [run(fault, draw.randrange(_size(fault))) for fault in faults for _ in range(runs)]


def measure_healthy(runs: int = 4, seed: int = SEED) -> list[Run]:
    """Run each healthy job `runs` times; right is one that was never called hung."""
    draw = random.Random(seed)  # noqa: S311 - not a secret
    return [healthy_run(kind, draw.randrange(RANKS)) for kind in HEALTHY for _ in range(runs)]


def _size(fault: str) -> int:
    return SIZES.get(fault, RANKS)


def healthy_run(kind: str, rank: int) -> Run:
    """Run a job that pauses and does not hang, and watch it throughout."""
    with tempfile.TemporaryDirectory(prefix="rankscope-hang-") as name:
        folder = Path(name)
        (folder / "rings").mkdir()
        steps = {"STEPS": "80"} if kind == "ended" else {}
        with (
            agents_over([folder], "--collector.interval=0.5") as (url,),
            _job(folder, kind, rank, steps) as job,
        ):
            return _never_hung(url, folder.name, kind, rank, job)


def _never_hung(url: str, job_id: str, kind: str, rank: int, job: subprocess.Popen[bytes]) -> Run:
    """Diagnose until well after the pause; right is a job that was always seen, and never hung.

    Looks before the first step know nothing and count for nothing; later ones without step records
    are counted with the outcome.
    """
    deadline, began, sentence = time.monotonic() + RUN_SECONDS, math.inf, "never seen"
    looks = blind = 0
    while (now := time.monotonic()) < min(deadline, began + HEALTHY_SECONDS):
        time.sleep(LOOK_SECONDS)
        if kind == "scaled" and now - began > HEALTHY_SECONDS / 2:
            job.terminate()
        report = _diagnosis(url, job_id, HANG_AFTER)
        known = report is not None and "no step records" not in str(report["verdict"]["summary"])
        if report is not None and report["verdict"]["class"] == "hang":
            return Run(kind, rank, False, None, str(report["verdict"]["summary"]), looks, blind)
        if known or began < math.inf:
            began, looks, blind = min(began, now), looks + 1, blind + (not known)
        if report is not None:
            sentence = str(report["verdict"]["summary"])
    seen = math.isfinite(began) and not blind
    return Run(kind, rank, seen, None, sentence, looks, blind)


def run(fault: str, rank: int) -> Run:
    """Run a job that hangs, or ends, and diagnose it until that is reported."""
    with tempfile.TemporaryDirectory(prefix="rankscope-hang-") as name:
        folder = Path(name)
        (folder / "rings").mkdir()
        logs = f"--nccl.log-files={folder}/job.log"
        with (
            agents_over([folder], "--collector.interval=0.5", logs) as (url,),
            _job(folder, fault, rank),
        ):
            return _asked(url, folder.name, fault, rank)


def _asked(url: str, job_id: str, fault: str, rank: int) -> Run:
    """Diagnose until the job is reported as hung, or as over."""
    deadline, sentence = time.monotonic() + RUN_SECONDS, "no verdict"
    hang_after = FIRST_STEP_HANG_AFTER if fault in BEFORE_STEPS else HANG_AFTER
    while time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        report = _diagnosis(url, job_id, hang_after)
        if report is None:
            continue
        verdict = report["verdict"]
        sentence = str(verdict["summary"])
        if verdict["class"] == "hang":
            quiet = time.time() - float(report["incidents"][0]["since_unix_seconds"])
            again = [_diagnosis(url, job_id, hang_after) for _ in range(MORE_LOOKS)]
            failed = sum(one is None or not _is_right(fault, rank, one["verdict"]) for one in again)
            right = _is_right(fault, rank, verdict) and not failed
            return Run(fault, rank, right, quiet, sentence, len(again), failed)
        if fault in ENDS and " failed first" in sentence:
            named = sentence.startswith(f"rank {rank} (")
            return Run(fault, rank, named or fault in RAISES, None, sentence)
        if fault not in ("raises", "again") and sentence.startswith("The job is over"):
            who = r"\d+" if fault in RAISES else f"{rank}"
            first = rf": rank {who} .* ended first, at |, rank {who} before the others"
            return Run(fault, rank, bool(re.search(first, sentence)), None, sentence)
    return Run(fault, rank, False, None, sentence)


def _is_right(fault: str, rank: int, verdict: dict[str, Any]) -> bool:
    text = str(verdict["summary"])
    if verdict["class"] != "hang" or list(verdict["ranks"]) != ([] if fault in NOBODY else [rank]):
        return False
    if fault == "groups":
        pair = sorted((rank, (rank + 1) % RANKS))
        both = all(f"rank {one} in all_reduce" in text for one in pair)
        return both and f"ranks {pair[0]}, {pair[1]} wait for each" in text
    if fault == "pair":
        return f"rank {rank} in broadcast" in text and f"rank {1 - rank} in all_reduce" in text
    return True


def _diagnosis(url: str, job_id: str, hang_after: str) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "rankscope_analyzers", "diagnose", "--agent", url]
    command += ["--job", job_id, "--json", "--hang-after", hang_after]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(ended.stdout)[job_id]
    except (ValueError, KeyError):
        return None
    return found


@contextlib.contextmanager
def _job(
    folder: Path, fault: str, rank: int, more: Mapping[str, str] = NOTHING
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the job; end all of it, the launcher first, which then starts nothing again."""
    mark = f"RANKSCOPE_RING_DIR={folder}/rings"
    variables: dict[str, str] = {
        "RANKSCOPE_RING_DIR": f"{folder}/rings",
        "RANKSCOPE_JOB_ID": folder.name,
    }
    variables |= {"PYTHONPATH": str(PROBE), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with (folder / "job.log").open("wb") as log, contextlib.ExitStack() as started:
        started.callback(_end_all, mark)
        for command, own in _commands(fault, rank):
            process = subprocess.Popen(
                [sys.executable, *command, str(SCRIPT)],
                env={**os.environ, **variables, "FAULT": f"{fault}:{rank}", **own, **more},
                stdout=log,
                stderr=log,
            )
            started.callback(_end, process)
        yield process


def _commands(fault: str, rank: int) -> Iterator[tuple[Sequence[str], Mapping[str, str]]]:
    """Yield the commands that start the job: by its launcher, or the ranks of a second attempt."""
    size = _size(fault)
    if fault not in ("absent", "again"):
        yield ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"], {}
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    own = {"WORLD_SIZE": f"{size}", "LOCAL_WORLD_SIZE": f"{size}", "MASTER_ADDR": "127.0.0.1"}
    own |= {"MASTER_PORT": f"{port}", "TORCHELASTIC_RESTART_COUNT": "1"}
    for one in range(size):
        if one != rank or fault == "again":
            yield [], {**own, "RANK": f"{one}", "LOCAL_RANK": f"{one}"}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _end_all(mark: str) -> None:
    """End all processes with a variable, which is all of the job except its launcher."""
    for pid in _processes_with(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def running_job(folder: Path) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Run a job without a fault, with its rings in a directory, until the block ends."""
    return _job(folder, "nothing", -1)


def hanging_job(
    folder: Path, rank: int
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Run a job of which a rank does not enter its 60th backward, until the block ends."""
    return _job(folder, "never", rank)


def _processes_with(variable: str) -> Iterator[int]:
    """Yield the processes that were started with a variable that only this run's have."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (place / "environ").read_bytes().split(b"\0"):
                yield int(place.name)


def report(runs: Sequence[Run]) -> str:
    """Return a line per fault, and the report if it was wrong."""
    lines = []
    for fault in dict.fromkeys(run.fault for run in runs):
        mine = [run for run in runs if run.fault == fault]
        times = [run.seconds for run in mine if run.seconds is not None]
        within = f", at most {max(times):.0f} s after the last step" if times else ""
        right = sum(run.right for run in mine)
        what = "the rank named"
        if fault in NOBODY:
            what = "nobody named" + ("" if fault in BEFORE_STEPS else ", both collectives listed")
        if fault in HEALTHY:
            looks, blind = sum(run.looks for run in mine), sum(run.blind for run in mine)
            what = f"never called hung and always seen ({looks} looks, {blind} without steps)"
        what = "the first process to end reported" if fault in RAISES else what
        again = sum(run.looks for run in mine) if fault in FAULTS else 0
        if again:
            within += f", and again in {again - sum(run.blind for run in mine)} of {again} looks"
        lines.append(f"{fault}: {what} in {right} of {len(mine)} runs{within}")
        lines += [f"  rank {run.rank}: {run.sentence}" for run in mine if not run.right]
    return "\n".join(lines)
