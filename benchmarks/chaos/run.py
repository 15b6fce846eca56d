"""Runs the matrix: each fault in turn, in the order of a seed, on one chain that keeps running."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.chaos import alerting
from benchmarks.chaos.chain import END_SECONDS, Chain, running
from benchmarks.chaos.faults import FAULTS, Fault, NotHereError
from benchmarks.chaos.invariants import FINAL, Seen, violations
from benchmarks.chaos.jobs import LONG, LONG_SLOW, SHORT_RANKS, SHORT_STEPS, Job, unprobed
from benchmarks.chaos.looking import Pages, asked, culprits, knows, records
from benchmarks.chaos.server import Use, comes_true, get
from benchmarks.running_jobs.launch import ForkServer

SETTLE_SECONDS = 90.0
"""Seconds after which everything must be as before: alerts wait for seconds here, not for
minutes."""

JOB_SECONDS = 120.0
MOST_MARKS = 8
"""Pods that fall back at a time: the agent follows the log of each, which takes a descriptor."""

SILENT = (OSError, http.client.HTTPException)
WARM = "warming up"


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a fault.

    Args:
        fault: its name.
        seconds: from its beginning until everything was as before.
        seen: what was seen.
        skipped: why this machine cannot have it; "" if it was injected.
    """

    fault: str
    seconds: float
    seen: Seen
    skipped: str = ""

    @property
    def violations(self) -> Mapping[str, Sequence[str]]:
        """Return the violations of each invariant that does not hold."""
        return {} if self.skipped else violations(self.seen)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    Args:
        seed: of its order and of its faults' random draws.
        rounds: one for each fault.
        long: exit codes of the job that trained all the time.
    """

    seed: int
    rounds: Sequence[Round]
    long: Sequence[int | None]


class Matrix:
    """Injects faults into a chain, one after the other.

    Args:
        chain: healthy at the start.
        expected: the files that each short job must have.
        drawn: random numbers for faults.
        settle: seconds until everything must be as before.
        before: resources of processes; {} for those after the first round.
    """

    def __init__(
        self,
        chain: Chain,
        expected: Mapping[str, bytes],
        drawn: random.Random,
        settle: float,
        before: Mapping[str, Use],
    ) -> None:
        self._chain, self._expected, self._random, self._settle = chain, expected, drawn, settle
        self._rounds = itertools.count(1)
        self._marks: list[str] = []
        self._doubled: set[str] = set()
        self._deaths: Mapping[str, int] = {}
        self._use = before

    def round(self, name: str, fault: Fault) -> Round:
        """Inject a fault while a job begins, trains and ends, and wait until all is healthy."""
        began, number = time.monotonic(), next(self._rounds)
        self._deaths = {one.name: one.deaths for one in self._chain.servers}
        try:
            with asked(self._chain.agent) as pages:
                with contextlib.ExitStack() as stack:
                    job = self._job(number) if not fault.ringless else None
                    stack.enter_context(fault.inject(self._chain, self._random))
                    job = job or self._job(number)
                    self._mark(number)
                    time.sleep(fault.seconds * self._random.uniform(0.7, 1.3))
                codes = job.wait(JOB_SECONDS)
                job.kill()
                seen = self._settled(job, codes, pages, fault)
        except NotHereError as error:
            return Round(name, 0.0, Seen(), str(error))
        self._doubled.update(seen.doubled)
        self._use = self._use or seen.after
        for path in self._chain.rings.folder.glob("*"):
            if int(path.name.partition("-")[0]) in job.pids:
                path.unlink()
        while len(self._marks) > MOST_MARKS:
            self._chain.remove_pod(self._marks.pop(0))
        return Round(name, time.monotonic() - began, seen)

    def _job(self, number: int) -> Job:
        chain = self._chain
        return Job(chain.ranks, chain.folder / "jobs" / f"chaos-{number}", chain.rings.folder)

    def _mark(self, number: int) -> None:
        """Cause an event during the fault that must lead to an alert."""
        self._marks.append(f"mark-{number}")
        self._chain.note_fallback(self._marks[-1])

    def _settled(self, job: Job, codes: Sequence[int | None], pages: Pages, fault: Fault) -> Seen:
        """Return what is seen once waiting longer changes nothing, or at the end of the time."""
        seen = Seen()

        def well() -> bool:
            nonlocal seen
            seen = self._look(job, codes, pages, fault)
            return violations(seen).keys() <= FINAL

        comes_true(well, self._settle)
        return seen

    def _look(self, job: Job, codes: Sequence[int | None], pages: Pages, fault: Fault) -> Seen:
        chain = self._chain
        messages = list(chain.sent.got)
        written = job.files()
        slow = (alerting.STRAGGLER, LONG)
        alerts = {slow, *((alerting.FALLBACK, one) for one in self._marks)}
        seen = Seen(
            exit_codes=codes,
            steps=SHORT_STEPS,
            ranks=0 if fault.ringless else SHORT_RANKS,
            changed=[n for n, text in self._expected.items() if written.get(n) != text],
            pages=pages.served,
            empty=pages.empty,
            unanswered=pages.unanswered,
            missing=sorted(alerts),
            doubled=sorted(self._doubles(messages) - self._doubled),
            died=self._died(),
            before=self._use,
            knows=False,
        )
        # If one of them does not answer, the others are still queried.
        with contextlib.suppress(*SILENT):
            holding = alerting.holding(get(f"{chain.prometheus.url}/api/v1/alerts"))
            on = alerting.firing(messages) - ({slow} - holding)
            seen = replace(seen, missing=sorted(alerts - on))
        with contextlib.suppress(*SILENT):
            seen = replace(seen, records={} if fault.ringless else records(chain, job))
        with contextlib.suppress(*SILENT):
            seen = replace(seen, after=_uses(chain))
        with contextlib.suppress(*SILENT):
            named = culprits(chain)
            others = [f"rank {rank}" for rank in sorted(named - {LONG_SLOW})]
            seen = replace(seen, knows=LONG_SLOW in named, accused=others)
        return seen

    def _died(self) -> list[str]:
        servers = self._chain.servers
        now = {one.name: one.deaths + (one.exit_code is not None) for one in servers}
        return [name for name, deaths in now.items() if deaths > self._deaths[name]]

    def _doubles(self, messages: Sequence[tuple[str, alerting.Message]]) -> set[str]:
        log = self._chain.incidents
        text = log.read_text(errors="replace") if log.exists() else ""
        twice = set(alerting.begun_twice(messages))
        again = alerting.repeated(messages)
        twice |= {f"{name} on {subject}, sent again" for name, subject in again}
        return twice | set(alerting.logged_twice(text))


def _uses(chain: Chain) -> Mapping[str, Use]:
    return {one.name: one.use() for one in (chain.agent, chain.watch)}


def measure(
    seed: int = 1,
    names: Sequence[str] = (),
    planted: Sequence[str] = (),
    settle: float = SETTLE_SECONDS,
    note: Callable[[str], None] = lambda line: None,
    beside: tuple[ForkServer, Job] | None = None,
) -> Result:
    """Run faults.

    Args:
        seed: of their order and of their random draws.
        names: of `FAULTS`, in their order; all of them, in the seed's order, by default.
        planted: faults of `PLANTS` that our processes have all the time.
        settle: seconds until everything must be as before after each.
        note: gets a line after each fault.
        beside: what `unprobed` yields, if several chains share it.

    Raises:
        RuntimeError: the chain was not healthy before the first fault, or the first job failed.
    """
    drawn = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    order = list(names) or drawn.sample(list(FAULTS), len(FAULTS))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rankscope-chaos-")))
        ranks, first = beside or stack.enter_context(unprobed(folder / "unprobed"))
        chain = stack.enter_context(running(folder, ranks, planted))
        _await_well(chain, planted)
        if set(first.wait(JOB_SECONDS)) != {0} or first.written():
            raise RuntimeError("the run without the probe failed, or had the probe")
        before = _uses(chain) if planted else {}
        matrix = Matrix(chain, first.files(), drawn, settle, before)
        rounds = []
        for name in [WARM, *order] if not planted else order:
            done = matrix.round(name, FAULTS["nothing" if name == WARM else name])
            note(line_of(done))
            rounds.append(done)
        return Result(seed, rounds, chain.long.end(END_SECONDS))


def _await_well(chain: Chain, planted: Sequence[str]) -> None:
    def well() -> bool:
        firing = alerting.firing(list(chain.sent.got))
        return (alerting.STRAGGLER, LONG) in firing and knows(chain)

    if planted:  # with some of them the alert never comes, but the watch always has its incident
        comes_true(lambda: chain.incidents.read_text(), SETTLE_SECONDS / 6)
    elif not comes_true(well, 2 * SETTLE_SECONDS):
        raise RuntimeError(
            f"{2 * SETTLE_SECONDS:g} s after the start, before any fault, alerts are"
            f" {alerting.firing(list(chain.sent.got))} and the watch names {culprits(chain)}"
        )


def line_of(done: Round) -> str:
    """Return a line on a fault, and one more for each violation."""
    if done.skipped:
        return f"{done.fault:34}not injected: {done.skipped}"
    records_ = done.seen.records.values()
    line = (
        f"{done.fault:34}{done.seconds:5.0f} s {done.seen.pages:5} pages"
        f" {sum(one.counted for one in records_):5} of {sum(one.written for one in records_):5}"
        f" records {len(done.violations):3} violated"
    )
    return "\n".join(
        [line, *(f"  FAULT: {n}: {'; '.join(what)}" for n, what in done.violations.items())]
    )


def report(result: Result) -> str:
    """Return the text on a run."""
    injected = [one for one in result.rounds if not one.skipped]
    violated = sum(len(one.violations) for one in injected)
    return "\n".join(
        [
            *map(line_of, result.rounds),
            f"seed {result.seed}: {len(injected)} faults, {violated} violations; the job that"
            f" trained all the time ended with {list(result.long)}; load average"
            f" {os.getloadavg()[0]:.0f} on {len(os.sched_getaffinity(0))} cores",
        ]
    )
