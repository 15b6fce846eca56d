"""A real training run on this machine with one rank made slow, and the verdict on it.

Starts an agent and a four-rank gloo job, waits, queries the agent, stops both. Everything it starts
listens on loopback and everything it writes is in a temporary directory.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from rich.console import Console
from rich.progress import Progress

from rankscope_agent.contract.metrics import training as metrics
from rankscope_analyzers.demo.faults import FAULTS
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.demo.probe_folder import probe_folder
from rankscope_analyzers.intake import agent_steps
from rankscope_analyzers.reports import verdict_json, verdict_text
from rankscope_analyzers.stragglers.diagnosis import diagnose
from rankscope_analyzers.stragglers.verdict import Verdict
from rankscope_analyzers.text.name_lists import named

RANKS = 4
STEPS = 300
"""Steps: at some 40 to 80 ms each this is long enough for a fault to last and short enough to
watch."""

START_SECONDS = 120.0
"""A server is up within a second, and within a minute where ten other programs want each core. One
that has ended is not waited for."""

PAGE_SECONDS = 30.0
"""For a page of the agent, which it has made before it is asked."""

STALL_SECONDS = 120.0
"""Seconds. The run takes about half a minute on two cores, and several minutes on busy ones; its
first step, for which PyTorch is imported, takes a quarter of a minute there."""

STOP_SECONDS = 10.0
RINGS = Path("rings")
POLL_SECONDS = 0.5


class DemoError(Exception):
    """The demo cannot run here; the message says what is missing or what failed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was injected and the result."""

    fault: str
    rank: int | None
    verdict: Verdict


def run(fault: str, rank: int, console: Console) -> Outcome:
    """Run the job with a fault and return the verdict on it.

    Args:
        fault: one of `FAULTS`.
        rank: the rank to slow down; ignored with the fault `none`.
        console: where progress is shown.

    Raises:
        DemoError: PyTorch is missing, the rank does not exist, or the run failed.
    """
    require(rank)
    injected = rank if FAULTS[fault] else None
    who = f"{fault} on rank {injected}" if injected is not None else "no fault"
    console.print(f"Training on this machine: {RANKS} gloo ranks, {STEPS} steps, {who}.")
    console.print("Nothing is downloaded; it only listens on loopback.")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rankscope-demo-")))
        url = stack.enter_context(agent(folder))
        job = stack.enter_context(training(folder, fault, rank, STEPS))
        _watch(job, url, console, folder)
        (records,) = agent_steps.from_agents([url], None, 0.0).jobs
    # The job computes on CPUs, whatever else the machine has.
    on_cpus = replace(records, without_gpus=frozenset(map(str, records.records["node"])))
    (verdict,) = diagnose([on_cpus])
    return Outcome(fault, injected, verdict)


def require(rank: int) -> None:
    """Refuse what cannot run.

    Raises:
        DemoError: PyTorch is missing, or the rank does not exist.
    """
    if not 0 <= rank < RANKS:
        raise DemoError(f"--rank {rank}: the demo job has the ranks 0 to {RANKS - 1}")
    if importlib.util.find_spec("torch") is None:
        raise DemoError("PyTorch is not installed: pip install 'rankscope[demo]'")


def as_object(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as JSON: what was injected, the verdict, the naive answer."""
    document = verdict_json.as_object(outcome.verdict)
    return {
        "injected": {"class": FAULTS[outcome.fault], "rank": outcome.rank},
        "verdict": document["verdict"],
        "naive": document["naive"],
    }


def show(console: Console, outcome: Outcome) -> None:
    """Print the verdict and how it compares with what was injected."""
    console.print(verdict_text.render(outcome.verdict))
    cause, naive = outcome.verdict.cause, outcome.verdict.naive.rank
    ranks = () if cause is None else cause.where.ranks
    answer = "no straggler" if cause is None else cause.kind
    if ranks:
        answer += f" on {named(ranks, 'rank')}"
    if outcome.rank is None:
        injected, expected = "nothing", None
    else:
        injected, expected = f"{FAULTS[outcome.fault]} on rank {outcome.rank}", outcome.rank
    console.print(f"\nInjected:       {injected}")
    console.print(f"Rankscope says: {answer}")
    if naive is not None:
        right = "which is right by chance" if naive == expected else "which is wrong"
        console.print(f"Largest step time says: rank {naive}, {right}")
    if outcome.rank is not None and outcome.rank not in ranks:
        console.print(
            "The fault is a fraction of a second in each step: if the ranks wait for a CPU"
            " most of the time, it cannot be seen. Try again when this machine is less busy."
        )


@contextmanager
def process(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[Any]:
    """Run a command in a separate process group and end the group afterwards.

    Whatever it and its libraries leave behind is left beside its log, and removed with that.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter with fixed arguments
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**environment, "TMPDIR": str(log.parent)},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, number)
                _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        return


@contextmanager
def agent(folder: Path, *flags: str) -> Iterator[str]:
    """Run an agent on the directory's rings and return its address.

    Raises:
        DemoError: it does not start.
    """
    rings, kernel_log = folder / RINGS, folder / "kmsg"
    rings.mkdir()
    kernel_log.touch()  # reports on other programs are not the demo's
    address = f"127.0.0.1:{free_port()}"
    command = [
        *(sys.executable, "-m", "rankscope_agent"),
        *(f"--web.listen-address={address}", f"--path.ring-dir={rings}"),
        *(f"--path.kubelet={folder / 'kubelet'}", f"--path.kmsg={kernel_log}", *flags),
    ]
    log = folder / "agent.log"
    with process(command, log, os.environ) as running:
        deadline = time.monotonic() + START_SECONDS
        while not answers(f"http://{address}/readyz"):
            if running.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"the agent did not start: {last_lines(log)}")
            time.sleep(POLL_SECONDS / 5)
        yield f"http://{address}"


@contextmanager
def training(
    folder: Path, fault: str, rank: int, steps: int = STEPS, job_id: str = "", rings: Path = RINGS
) -> Iterator[Any]:
    """Run the job with the probe until the block ends.

    Args:
        folder: for its log.
        fault: one of `FAULTS`.
        rank: the rank to slow down.
        steps: after which it ends by itself.
        job_id: its name; default: after the fault.
        rings: directory that the probe writes to; within `folder` unless it is absolute.
    """
    script = Path(__file__).with_name("job.py")
    command = [
        *(sys.executable, str(script), f"--ranks={RANKS}"),
        *(f"--steps={steps}", f"--fault={fault}", f"--rank={rank}"),
    ]
    folders = [str(probe_folder()), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(folders),
        "RANKSCOPE_RING_DIR": str(folder / rings),
        "RANKSCOPE_JOB_ID": job_id or f"demo/{fault}",
        "OMP_NUM_THREADS": "1",  # four ranks share this machine's cores
        "GLOO_SOCKET_IFNAME": "lo",  # the host name may not resolve
    }
    with process(command, folder / "job.log", environment) as running:
        yield running


def _watch(job: subprocess.Popen[bytes], url: str, console: Console, folder: Path) -> None:
    """Show the progress of the job from the agent's metrics until the job has ended."""
    newest, deadline = 0.0, time.monotonic() + STALL_SECONDS
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("training", total=STEPS)
        while job.poll() is None:
            if (step := _newest_step(url)) > newest:
                newest, deadline = step, time.monotonic() + STALL_SECONDS
            if time.monotonic() > deadline:
                raise DemoError(f"the job made no step for {STALL_SECONDS:.0f} s")
            progress.update(task, completed=newest)
            time.sleep(POLL_SECONDS)
    if job.returncode:
        raise DemoError(f"the job ended with {job.returncode}: {last_lines(folder / 'job.log')}")


def _newest_step(url: str) -> float:
    with urlopen(f"{url}/metrics", timeout=PAGE_SECONDS) as answer:  # noqa: S310 - our own agent
        lines = answer.read().decode().splitlines()
    values = (
        line.rsplit(" ", 1)[1] for line in lines if line.startswith(metrics.LAST_STEP.name + "{")
    )
    return max(map(float, values), default=0.0)


def answers(url: str) -> bool:
    """Return True if one of our servers answers there."""
    try:
        with urlopen(url, timeout=POLL_SECONDS) as answer:  # noqa: S310 - our own agent
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def last_lines(log: Path) -> str:
    """Return the end of a log in one line."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return " | ".join(lines[-3:]) or "it printed nothing"
