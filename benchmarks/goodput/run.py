"""Runs jobs with faults under torchrun, each with an agent and a watch, and compares the account.

The bar: each cause within 5 % of its seconds, productive time within 5 % of kept steps times the
undisturbed step, at most 3 % unexplained, and a healthy job loses at most 1 %.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agents import agents_over
from benchmarks.commands import environment
from benchmarks.goodput.cases import CASES, Case
from benchmarks.goodput.truth import Truth, truth

SCRIPT = Path(__file__).with_name("training.py")
PROBE = Path(__file__).parents[2] / "agent" / "probe"
RANKS = 2
LOOKS_SECONDS = 5.0
HANG_AFTER = "12s"
BEHIND_SECONDS = 120.0
"""Seconds after a job's end in which its account may be open: agents notice it, and the watch
looks."""

RUN_SECONDS = 240.0
LEAST_SECONDS = 3.0
"""Seconds of all ranks below which a part is not compared: starting and ending takes as long."""

ENDS = ("startup", "idle")
"""Parts that each job has."""

WITHIN, HEALTHY_LOST, MOST_UNEXPLAINED = 0.05, 0.01, 0.03
_VALUE = r'^rankscope_job_gpu_seconds_total\{job_id="NAME",part="(\w+)"\} (\S+)$'
_LISTENING = re.compile(r"listening on (http://\S+)/metrics")


@dataclass(frozen=True, slots=True)
class Run:
    """One job: its faults, the watch's account, and how often the watch was started."""

    case: str
    done: Truth
    reported: Mapping[str, float]
    watches: int


def measure(names: Sequence[str] = tuple(CASES), restarted: Sequence[str] = ("data",)) -> list[Run]:
    """Run each job, one after another; in the middle of some, kill the watch and start another."""
    return [run(name, CASES[name], restarted=name in restarted) for name in names]


def run(name: str, case: Case, *, restarted: bool = False) -> Run:
    """Run one job to its end and read the watch's account of it."""
    with (
        tempfile.TemporaryDirectory(prefix="rankscope-goodput-") as place,
        contextlib.ExitStack() as end,
    ):
        folder = Path(place)
        for part in ("rings", "journal"):
            (folder / part).mkdir()
        (agent,) = end.enter_context(agents_over([folder], "--collector.interval=1"))
        watch = end.enter_context(_watch(folder, agent))
        job = end.enter_context(_job(folder, case))
        if restarted:
            time.sleep(25.0)
            watch.kill()
            watch = end.enter_context(_watch(folder, agent))
        job.wait(RUN_SECONDS)
        reported = _account(folder)
        if not any(reported.values()):
            raise RuntimeError(f"the watch has no account: {(folder / 'watch.log').read_text()}")
        return Run(name, truth(folder / "journal", RANKS), reported, 1 + restarted)


def _account(folder: Path) -> Mapping[str, float]:
    """Return the account of a finished job, once the watch knows its end."""
    deadline = time.monotonic() + BEHIND_SECONDS
    reported: dict[str, float] = {}
    while time.monotonic() < deadline and not reported.get("idle"):
        time.sleep(LOOKS_SECONDS)
        text = urllib.request.urlopen(f"{_address(folder)}/metrics").read().decode()  # noqa: S310
        # An agent sees the processes of other jobs on this machine, too.
        lines = re.findall(_VALUE.replace("NAME", folder.name), text, re.MULTILINE)
        reported = {part: float(value) for part, value in lines}
    return reported


@contextlib.contextmanager
def _watch(folder: Path, agent: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "rankscope_analyzers", "watch", "--agent", agent]
    command += [f"--interval={LOOKS_SECONDS:.0f}s", f"--hang-after={HANG_AFTER}"]
    command += [f"--state={folder}/watch.state", "--web.listen-address=127.0.0.1:0"]
    with (folder / "watch.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, env=environment())
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _address(folder: Path) -> str:
    found = _LISTENING.search((folder / "watch.log").read_text())
    if found is None:
        raise RuntimeError(f"the watch does not listen: {(folder / 'watch.log').read_text()}")
    return found[1]


@contextlib.contextmanager
def _job(folder: Path, case: Case) -> Iterator[subprocess.Popen[bytes]]:
    variables = {
        "RANKSCOPE_RING_DIR": f"{folder}/rings",
        "RANKSCOPE_JOB_ID": folder.name,
        "PYTHONPATH": str(PROBE),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "JOURNAL": f"{folder}/journal",
        "STEPS": f"{case.steps}",
        "FAULTS": case.faults,
        "START_SECONDS": f"{case.start_seconds}",
    }
    command = ["-m", "torch.distributed.run", "--standalone", "--max-restarts=3"]
    command += [f"--nproc-per-node={RANKS}", "--monitor-interval=0.1", str(SCRIPT)]
    with (folder / "job.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **variables},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def report(runs: Sequence[Run]) -> str:
    """Return a line per job and part, with what was done, what was reported, and the bar."""
    return "\n".join(line for one in runs for line in _lines(one))


def _lines(one: Run) -> Iterator[str]:
    done, reported = one.done, one.reported
    total = sum(reported.values())
    yield (
        f"{one.case}: {done.allocated:.1f} GPU-s held, {total:.1f} in the account, an undisturbed"
        f" step {done.usual * 1e3:.1f} ms, {one.watches} watches"
    )
    for part, seconds in {**done.lost, "productive": done.productive}.items():
        if seconds >= LEAST_SECONDS:
            found = reported.get(part, 0.0)
            off = found / seconds - 1
            mark = _mark(abs(off) <= WITHIN)
            yield f"  {part}: done {seconds:.1f}, said {found:.1f} ({off:+.1%}){mark}"
    unexplained = reported.get("unexplained", 0.0) / (total or 1.0)
    yield f"  unexplained: {unexplained:.2%}{_mark(unexplained <= MOST_UNEXPLAINED)}"
    rest = {
        part: seconds
        for part, seconds in reported.items()
        if done.lost.get(part, 0.0) < LEAST_SECONDS and part not in ("productive", "unexplained")
    }
    lost = sum(seconds for part, seconds in rest.items() if part not in ENDS) / (total or 1.0)
    where = ", ".join(f"{part} {seconds:.1f}" for part, seconds in rest.items() if seconds >= 0.05)
    yield f"  reported but not injected: {lost:.2%}{_mark(lost <= HEALTHY_LOST)} ({where})"


def _mark(good: bool) -> str:
    return "" if good else " MISSED"
