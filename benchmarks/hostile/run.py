"""Runs the attacks and reports their cost; `python -m benchmarks hostile` takes five minutes.

Two nodes with a real agent each; a job of the team `team` trains on both, and one of its ranks
computes 1.6 times as long. All attackers share one core. A second job of the team starts during the
attacks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.commands import environment
from benchmarks.hostile import attackers, trainer
from benchmarks.hostile.nodes import SHOWN, TEAM, TOKEN, Node, annotating, node
from benchmarks.hostile.watching import (
    LATE_SECONDS,
    LOOK_SECONDS,
    PROBE_SECONDS,
    SCRAPE_SECONDS,
    Engineer,
    Scraper,
    Seen,
    again_and_again,
    await_true,
    page_of,
    probe,
    series_of,
)
from benchmarks.processes import memory_mib

from rankscope_analyzers.demo.free_ports import free_port

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import attackers as network
from dripping import DRIPS, Dripping

SECONDS = 300.0
NODES = 2
RANKS = NODES * trainer.RANKS_OF_A_NODE
SLOW_RANK = 5
INTERVAL = "5s"
START_SECONDS = 180.0
"""Seconds for what a machine with free cores does in less."""

YIELDING = 0
"""By how much attackers lower their priority, as `nice` counts."""

ATTACKED_BY_FILES = NODES
"""Nodes whose pods attack by files, the first ones; those over the network attack the first."""

PAUSE_SECONDS = 0.0
"""Seconds between two acts of an attacker by files."""

COUNTS: Mapping[str, Sequence[str]] = {}
"""What attackers by files are told beside their folder, by kind."""

MOST_MIB = 256
"""MiB that the DaemonSet gives an agent; more would mean a restart."""

VERDICT = re.compile(
    rf'^rankscope_finding_culprit_info{{[^}}]*job_id="{TEAM}/llm"[^}}]*kind="gpu_compute"'
    rf'[^}}]*rank="{SLOW_RANK}"',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the attacks.

    Args:
        seconds: how long they lasted.
        attacks: how often each acted.
        seen: what others saw in the meantime.
        restarts: agents and watches that ended.
        peak_mib: the most memory that an agent held.
        jobs: for each job its trainer's report, and the steps that agents counted of it.
    """

    seconds: float
    attacks: Mapping[str, int]
    seen: Seen
    restarts: int
    peak_mib: float
    jobs: Mapping[str, Mapping[str, int]]


def measure(seconds: float = SECONDS, *flags: str) -> Result:
    """Attack for a given time.

    Args:
        seconds: how long.
        flags: further ones of the agents.

    Raises:
        RuntimeError: not all was seen before the attacks began.
    """
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nodes = [stack.enter_context(node(root / f"n{number}", *flags)) for number in range(NODES)]
        llm = stack.enter_context(_training(nodes, "llm", SLOW_RANK, 1))
        watch, url = stack.enter_context(_watch(root, nodes))
        seen = Seen(settled=frozenset({"llm"}))
        engineer = Engineer(url, VERDICT, seen)
        await_true(lambda: _is_seen(nodes, "llm"), START_SECONDS, "the job's ranks")
        await_true(engineer.knows, START_SECONDS, "the watch's verdict")
        began = time.monotonic()
        attacks, late = _attacked(nodes, engineer, seen, seconds)
        lasted = time.monotonic() - began
        processes = [one.agent.process for one in nodes] + [watch]
        restarts = sum(process.poll() is not None for process in processes)
        peak = max(memory_mib(one.agent.process.pid, "VmHWM") for one in nodes)
        jobs = {"llm": _job_summary(llm, nodes, "llm"), "late": late}
        return Result(lasted, attacks, seen, restarts, peak, jobs)


def _attacked(
    nodes: Sequence[Node], engineer: Engineer, seen: Seen, seconds: float
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Attack while all others keep requesting; return the counts, and the late job's report."""
    with contextlib.ExitStack() as stack:
        for one in nodes:
            stack.enter_context(again_and_again(PROBE_SECONDS, partial(probe, one, seen)))
            stack.enter_context(again_and_again(SCRAPE_SECONDS, Scraper(one, RANKS, seen)))
        stack.enter_context(again_and_again(LOOK_SECONDS, engineer))
        count = stack.enter_context(annotating(nodes))
        attacking = _attackers(nodes)
        stack.callback(_end, attacking)
        time.sleep(seconds / 3)
        began = time.monotonic()
        with _training(nodes, "late", -1, 50) as late:
            await_true(lambda: _is_seen(nodes, "late"), START_SECONDS, "the late job's ranks")
            seen.late_job_seconds = time.monotonic() - began
            seen.settled |= {"late"}
            time.sleep(2 * seconds / 3)
            evaluated = "evaluations by the watch amid the attacks"
            await_true(lambda: len(seen.evaluations) > 1, START_SECONDS, evaluated)
            seen.settled -= {"late"}
            late_summary = _job_summary(late, nodes, "late")
        counts = _times(attacking)
    return counts | {"annotations": count[0]}, late_summary


def _attackers(nodes: Sequence[Node]) -> dict[str, subprocess.Popen[str]]:
    """Start all attackers."""
    by_files = {
        f"{kind} on {one.folder.name}": _started(
            [attackers.__file__, kind, str(one.folder), str(PAUSE_SECONDS), *COUNTS.get(kind, ())]
        )
        for one in nodes[:ATTACKED_BY_FILES]
        for kind in attackers.KINDS
    }
    for process in by_files.values():
        if process.stdout is None or process.stdout.readline() != attackers.READY:
            raise RuntimeError(f"{process.args!r} has made no files to attack with")
    for process in by_files.values():
        if process.stdin is not None:
            process.stdin.write(attackers.BEGIN)
            process.stdin.flush()
    agent = nodes[0].agent
    ports = [str(urlsplit(url).port) for url in (agent.url, agent.health_url)]
    over_network = {
        kind: _started([network.__file__, kind, *ports, str(2 + 50 * number)])
        for number, kind in enumerate(network.KINDS)
    }
    attacking = over_network | by_files
    for process in attacking.values():
        usual = os.getpriority(os.PRIO_PROCESS, process.pid)
        os.setpriority(os.PRIO_PROCESS, process.pid, usual + YIELDING)
    return attacking


def _started(command: Sequence[str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *command], stdin=pipe, stdout=pipe, text=True, env=environment()
    )


def _times(attacking: Mapping[str, subprocess.Popen[str]]) -> dict[str, int]:
    """End all attackers at once; return how often each acted."""
    for process in attacking.values():
        if process.stdin is not None:
            process.stdin.close()
            process.stdin = None  # else `communicate` flushes it
    return {
        name: int(process.communicate(timeout=START_SECONDS)[0])
        for name, process in attacking.items()
    }


def _end(processes: Mapping[str, subprocess.Popen[str]]) -> None:
    for process in processes.values():
        process.kill()
        process.communicate()


@contextlib.contextmanager
def _training(
    nodes: Sequence[Node], job: str, slow: int, number: int
) -> Iterator[subprocess.Popen[str]]:
    """Have a job of the team train on all nodes until the block ends."""
    volumes = [
        str(one.add_pod(job, f"{job}-{place}", number + place)) for place, one in enumerate(nodes)
    ]
    process = _started([trainer.__file__, f"{TEAM}/{job}", str(slow), *volumes])
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def _watch(root: Path, nodes: Sequence[Node]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a watch of all agents, and of two that never end their responses; yield its address."""
    port = free_port()
    with contextlib.ExitStack() as stack:
        drips = [stack.enter_context(Dripping(DRIPS[name])) for name in ("headers", "chunks")]
        urls = [one.agent.url for one in nodes] + [drip.url for drip in drips]
        command = [sys.executable, "-m", "rankscope_analyzers", "watch", f"--interval={INTERVAL}"]
        command += [f"--agent={url}" for url in urls]
        (root / "token").write_text(TOKEN)
        command += [f"--token-file={root}/token", f"--web.listen-address=127.0.0.1:{port}"]
        with (root / "watch.log").open("wb") as log:
            process = subprocess.Popen(command, stderr=log, stdout=log, env=environment())
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _pages(nodes: Sequence[Node], job: str) -> list[dict[str, float]]:
    """Return the series of a job on the agents' pages."""
    return [series_of(page_of(one.agent.url, SHOWN), (job,)) for one in nodes]


def _counted(pages: Sequence[Mapping[str, float]], job: str) -> list[float]:
    """Return the steps that agents have counted of each rank of a job."""
    name = f'rankscope_steps_total{{job_id="{TEAM}/{job}"'
    return [value for page in pages for series, value in page.items() if series.startswith(name)]


def _is_seen(nodes: Sequence[Node], job: str) -> bool:
    """Return True once all ranks of a job are seen, and all agents know its pods."""
    pages = _pages(nodes, job)
    steps = _counted(pages, job)
    nameless = any('job_id=""' in series for page in pages for series in page)
    return len(steps) == RANKS and min(steps) >= trainer.HISTORY and not nameless


def _job_summary(
    process: subprocess.Popen[str], nodes: Sequence[Node], job: str
) -> Mapping[str, int]:
    """End a trainer; return its report, and how many ranks agents counted all steps of."""
    summary = json.loads(process.communicate(timeout=START_SECONDS)[0])
    counts: list[float] = []

    def all_counted() -> bool:
        counts[:] = _counted(_pages(nodes, job), job)
        return set(counts) == {summary["steps"]}

    with contextlib.suppress(RuntimeError):  # then the count says it
        await_true(all_counted, START_SECONDS / 6, "all steps")
    whole = sum(steps == summary["steps"] for steps in counts)
    return {**summary, "counted": whole}


def faults(result: Result) -> list[str]:
    """Return the costs of the attacks, by counts alone; none are expected."""
    seen = result.seen
    in_time = {
        "scrapes not answered": seen.failed_scrapes,
        "series of other jobs lost": len(seen.lost),
        "looks at the watch without the verdict": seen.missed,
        "looks at the watch with a late verdict": seen.late,
    }
    return [*faults_at_any_load(result), *_counted_ones(in_time)]


def faults_at_any_load(result: Result) -> list[str]:
    """Return the faults that load on the machine cannot cause."""
    seen, jobs = result.seen, result.jobs
    found = {
        "restarts": result.restarts,
        f"agents beyond {MOST_MIB} MiB": int(result.peak_mib > MOST_MIB),
        "liveness probes not answered": seen.failed_probes,
        "series of other jobs lost without a collector that failed": len(seen.unexplained),
        "counters of other jobs that fell": len(seen.fallen),
        "series of ranks that other jobs do not have": len(seen.made_up),
        "ranks wrongly reported as slow": len(seen.accused),
        "trainers' files changed": sum(job["files"] - job["identical"] for job in jobs.values()),
        "ranks of which steps were missed": sum(
            job["files"] - job["counted"] for job in jobs.values()
        ),
        "attacks that did not take place": sum(not count for count in result.attacks.values()),
    }
    return _counted_ones(found)


def _counted_ones(found: Mapping[str, int]) -> list[str]:
    return [f"{count} {what}" for what, count in found.items() if count]


def report(result: Result) -> str:
    """Return the text on a result."""
    seen = result.seen
    rows = [f"{name:28}{count:>9,} times" for name, count in result.attacks.items()]
    rows += [
        f"{result.seconds:.0f} s of all of them at once, attackers on one core",
        f"restarts {result.restarts}; most memory of an agent {result.peak_mib:.0f} MiB",
        f"liveness probes {seen.probes:,}, not answered {seen.failed_probes}",
        f"scrapes {seen.scrapes:,}, not answered {seen.failed_scrapes};"
        f" series of other jobs lost {len(seen.lost)}, of these unexplained"
        f" {len(seen.unexplained)}, counters that fell {len(seen.fallen)}, ranks made up"
        f" {len(seen.made_up)}",
        f"all ranks of a job that came amid the attacks seen after {seen.late_job_seconds:.0f} s",
        f"looks at the watch {seen.looks:,}, without the verdict {seen.missed}, with one older than"
        f" {LATE_SECONDS:g} s {seen.late} (oldest evaluation {seen.oldest_seconds:.0f} s, oldest"
        f" verdict {seen.oldest_verdict_seconds:.0f} s); evaluations {len(seen.evaluations)};"
        f" other ranks accused {len(seen.accused)}",
        f"load average {os.getloadavg()[0]:.0f} on {len(os.sched_getaffinity(0))} cores",
        *(
            f"job {name}: {job['steps']:,} steps; ranks counted in full {job['counted']} of"
            f" {job['files']}; files identical {job['identical']} of {job['files']}"
            for name, job in result.jobs.items()
        ),
        *sorted(seen.unexplained)[:20],
        *sorted((seen.lost - seen.unexplained) | seen.fallen | seen.made_up | seen.accused)[:20],
    ]
    return "\n".join([*rows, *(f"FAULT: {fault}" for fault in faults(result))])
