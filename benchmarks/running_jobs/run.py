"""Runs one job under a real agent and diagnoses it, while it runs, as a user would."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from benchmarks.agents import agents_over
from benchmarks.diagnosed import diagnose
from benchmarks.running_jobs.cases import ENDED, NO_STEPS, Case
from benchmarks.running_jobs.launch import ForkServer, Links, Quota, quota, send

from rankscope_analyzers.demo.free_ports import free_port

START_SECONDS = 120.0
"""Seconds that a busy machine may take until every rank has made a step."""

BLIND_SECONDS = 20.0
"""The same for a job of which no steps are seen."""

ENDS = frozenset(("missing_rank", "rank_ended", "rank_stopped"))
"""Kinds of incidents, or of the report on a job that is over, that mean that a rank is gone."""

FIRST_RECORD = 4096
"""Offset of a ring's first record, with its number."""

Answer = tuple[str | None, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The report on a job.

    Args:
        reported: a class or `ENDED` or `NO_STEPS`, with the ranks.
        summary: the sentence.
        rows: its step records, as the agent returns them.
    """

    reported: Answer
    summary: str
    rows: pd.DataFrame


@dataclass(frozen=True, slots=True)
class _Started:
    """The processes of a case, and what can be done to them."""

    pids: Sequence[int]
    links: Links | None
    quotas: Sequence[Quota]


def run(case: Case, server: ForkServer) -> Outcome:
    """Run a job, get the verdict on it, and end it."""
    with under_agent(case, server) as url:
        return _outcome(case, url)


@contextlib.contextmanager
def under_agent(case: Case, server: ForkServer) -> Iterator[str]:
    """Run a job for its time, then yield its agent's address; both end with the block."""
    with under_agents(case, server, ()) as (url,):
        yield url


@contextlib.contextmanager
def under_agents(case: Case, server: ForkServer, *flags: Sequence[str]) -> Iterator[Sequence[str]]:
    """Run a job for its time under several agents; yield their addresses.

    Args:
        case: what to run.
        server: forks the ranks.
        flags: of each agent, further ones.
    """
    memory = Path("/dev/shm")  # noqa: S108 - a directory of our own is made in it
    with contextlib.ExitStack() as stack:
        directory = memory if memory.is_dir() else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory))) / "node-a"
        (folder / "rings").mkdir(parents=True)
        agents = [
            stack.enter_context(_agent(folder, number, own)) for number, own in enumerate(flags)
        ]
        started = stack.enter_context(_started(case, server, folder))
        if case.beside is not None:
            stack.enter_context(_started(case.beside, server, folder))
        _await_steps(case, folder)
        _let_run(case, started)
        yield agents


@contextlib.contextmanager
def _agent(job: Path, number: int, flags: Sequence[str]) -> Iterator[str]:
    """Run one of the agents of a job, with a state of its own."""
    own = job.parent / str(number) / job.name
    own.mkdir(parents=True)
    rings = f"--path.ring-dir={job / 'rings'}"
    with agents_over([own], "--no-collector.kernel_log", rings, *flags) as (url,):
        yield url


@contextlib.contextmanager
def _started(case: Case, server: ForkServer, folder: Path) -> Iterator[_Started]:
    """Start the ranks of a case; end them when the block ends."""
    name, pids = f"rs{os.getpid()}", list[int]()
    with contextlib.ExitStack() as stack:
        links = stack.enter_context(Links(name, case.ranks, case.links)) if case.links else None
        limited = [int(case.outside[1])] if case.outside[:1] == ("quota",) else []
        quotas = [stack.enter_context(quota(f"{name}-{rank}")) for rank in limited]
        stack.callback(_end, pids)
        port = free_port()
        for rank in range(case.ranks):
            pids.append(
                server.fork(
                    case.loop,
                    _environment(case, folder, rank, port, links),
                    folder / f"{case.name}-{rank}.log",
                    processes=quotas[0].processes if rank in limited else "",
                    network=links.path(rank) if links else "",
                )
            )
        yield _Started(pids, links, quotas)


def _end(pids: Sequence[int]) -> None:
    """End processes and wait until they are gone, with what they hold."""
    send(pids, signal.SIGKILL)
    deadline = time.monotonic() + START_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)


def _environment(
    case: Case, folder: Path, rank: int, port: int, links: Links | None
) -> Mapping[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(case.ranks),
        "LOCAL_WORLD_SIZE": str(case.ranks),
        "MASTER_ADDR": links.address(0) if links else "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "eth0" if links else "lo",
        "RANKSCOPE_JOB_ID": case.name,
        "RANKSCOPE_NODE_NAME": folder.name,
        "RANKSCOPE_RING_DIR": str(folder / "rings"),
        "TMPDIR": str(folder),
        "INJECTED_FAULT": json.dumps(case.fault),
        "SETTINGS": json.dumps(case.settings),
    }


def _await_steps(case: Case, folder: Path) -> None:
    """Wait until every rank has made a step.

    Raises:
        RuntimeError: they do not.
    """
    blind = case.expected[0][0] == NO_STEPS
    deadline = time.monotonic() + (BLIND_SECONDS if blind else START_SECONDS)
    ranks = case.ranks + (case.beside.ranks if case.beside else 0)
    while sum(map(_has_record, (folder / "rings").glob("[0-9]*.ring"))) < ranks:
        if time.monotonic() > deadline:
            if blind:
                return
            logs = "\n".join(path.read_text() for path in folder.glob(f"{case.name}-*.log"))
            raise RuntimeError(f"{case.name} does not train:\n{logs}")
        time.sleep(0.1)


def _has_record(ring: Path) -> bool:
    """Return True if a ring has a record; a probe deletes an empty one to make another."""
    try:
        with ring.open("rb") as file:
            file.seek(FIRST_RECORD)
            return any(file.read(8))
    except FileNotFoundError:
        return False


def _let_run(case: Case, started: _Started) -> None:
    """Let a job run for its time, and do to it what its case requires."""
    begin = time.monotonic()
    if case.outside:
        verb, *rest = case.outside
        do, after = _DEEDS[str(verb)](started, rest)
        time.sleep(after)
        do()
    time.sleep(max(0.0, begin + case.seconds - time.monotonic()))


Deed = tuple[Callable[[], None], float]
"""Actions, and the seconds after which they are done."""


def _freeze(started: _Started, words: Sequence[Any]) -> Deed:
    rank, after, seconds = words

    def do() -> None:
        send([started.pids[rank]], signal.SIGSTOP)
        time.sleep(seconds)
        send([started.pids[rank]], signal.SIGCONT)

    return do, after


def _signal(number: signal.Signals) -> Callable[[_Started, Sequence[Any]], Deed]:
    def deed(started: _Started, words: Sequence[Any]) -> Deed:
        rank, after = words
        return lambda: send([started.pids[rank]], number), after

    return deed


def _quota(started: _Started, words: Sequence[Any]) -> Deed:
    _, after, share = words
    return lambda: started.quotas[0].limit(share), after


def _link(started: _Started, words: Sequence[Any]) -> Deed:
    rank, after, factor, direction = words
    return lambda: _slow(started, [rank], factor, direction), after


def _links(started: _Started, words: Sequence[Any]) -> Deed:
    after, factor = words
    return lambda: _slow(started, range(len(started.pids)), factor, "both"), after


def _slow(started: _Started, ranks: Sequence[int], factor: float, direction: str) -> None:
    if started.links is None:
        raise ValueError("the case has no links of its own")
    for rank in ranks:
        started.links.slow(rank, factor, direction)


_DEEDS: Mapping[str, Callable[[_Started, Sequence[Any]], Deed]] = {
    "freeze": _freeze,
    "kill": _signal(signal.SIGKILL),
    "stop": _signal(signal.SIGSTOP),
    "quota": _quota,
    "link": _link,
    "links": _links,
}


def _outcome(case: Case, url: str) -> Outcome:
    answer, problem = diagnose([f"--agent={url}"])
    reported = (answer or {}).get(case.name)
    with urllib.request.urlopen(f"{url}/api/v1/steps?job={case.name}&since=0") as reply:  # noqa: S310
        steps = json.load(reply)
    rows = pd.DataFrame(steps["rows"], columns=steps["columns"])
    if reported is None:
        return Outcome(("no answer", ()), problem.strip() or "the job is not mentioned", rows)
    return Outcome(_answer_of(reported), reported["verdict"]["summary"], rows)


def _answer_of(answer: Mapping[str, Any]) -> Answer:
    """Return the content of an answer: first that a rank is gone, then who is slow."""
    for incident in answer["incidents"]:
        if incident["cause"]["kind"] in ENDS:
            return ENDED, tuple(incident["ranks"])
    verdict = answer["verdict"]
    for seen in answer["observations"]:
        if seen["kind"] in ENDS and seen["summary"][1:] in verdict["summary"]:
            return ENDED, tuple(seen["ranks"])
    if verdict["class"] is None and not answer["ranks"]:
        return NO_STEPS, ()
    named = verdict["ranks"]
    if verdict["class"] is not None and not named and answer["incidents"]:
        named = answer["incidents"][0]["ranks"]  # named by another layer
    return verdict["class"], tuple(named)


def right(case: Case, reported: Answer) -> bool:
    """Return True if an answer is among those that a case expects; the order of ranks is free."""
    return (reported[0], sorted(reported[1])) in [
        (kind, sorted(ranks)) for kind, ranks in case.expected
    ]
