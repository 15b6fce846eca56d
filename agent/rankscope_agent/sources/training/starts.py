"""How long a job's ranks took to start, from their processes to their first step; pure.

The start of a process is in its ring's header, in clock ticks since the node booted; joining the
others is a span of its probe (`init_process_group`; older probes mark none); the first record
begins where the first step ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.metrics import job_starts as metrics
from rankscope_agent.contract.model import SPAN_OUTCOMES, RankIdentity, Sample
from rankscope_agent.sources.training.format import RingHeader
from rankscope_agent.sources.training.spans import Span

NS = 10**9
TICKS = os.sysconf("SC_CLK_TCK")
RENDEZVOUS = "rendezvous"

SLACK_SECONDS = 2.0
"""How much too early or too late a process may seem to start: containers' times are in whole
seconds. A process of a virtual machine within the node counts ticks from that machine's own
boot."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known about the container of a rank; None if unknown.

    Args:
        pod_created: Unix time at which its pod was created.
        container_started: Unix time at which its container started.
    """

    pod_created: float | None = None
    container_started: float | None = None


class RankStart:
    """How one process of a rank started; times in Unix nanoseconds, None before they occur.

    `began` is in seconds, by the node's clock at the first reading: it may have been set later.
    """

    __slots__ = ("_process", "began", "created_unix_ns", "first_step", "joined", "joining")

    def __init__(self) -> None:
        self._process: tuple[int, int] | None = None
        self._begin(None, 0)

    def _begin(self, began: float | None, created_unix_ns: int) -> None:
        self.began = began
        self.created_unix_ns = created_unix_ns
        self.joining: int | None = None
        self.joined: int | None = None
        self.first_step: int | None = None

    def note(
        self,
        header: RingHeader,
        first_step: int | None,
        ended: Iterable[Span],
        boot: Callable[[], float],
    ) -> None:
        """Record what the ring of the rank's newest process shows by now.

        A process may have several rings, of which a later one need not contain the first spans.

        Args:
            header: of the ring.
            first_step: Unix time in nanoseconds at which its first step ended, if shown.
            ended: spans that have ended since the previous call.
            boot: returns when the node booted, in Unix seconds.
        """
        process = (header.pid, header.process_start_ticks)
        if process != self._process:
            self._process = process
            ticks = header.process_start_ticks
            began = boot() + ticks / TICKS if ticks else None
            self._begin(began, header.created_unix_ns)
        self.first_step = self.first_step if first_step is None else first_step
        for span in ended:
            if span.kind_name == RENDEZVOUS and not self._is_late(span):
                first = span.start_unix_ns
                self.joining = min(first, self.joining or first)
                if SPAN_OUTCOMES[span.outcome] == "done":
                    self.joined = max(self.joined or 0, first + span.duration_ns)

    def _is_late(self, span: Span) -> bool:
        """Return True for a rank that leaves the others and joins them again while it trains."""
        return self.first_step is not None and span.start_unix_ns > self.first_step


def samples(
    job_id: str, starts: Sequence[tuple[RankIdentity, RankStart, Surroundings]]
) -> Iterator[Sample]:
    """Yield how long each phase took for the slowest rank; unfinished phases are left out.

    Args:
        job_id: of the job.
        starts: of its ranks on this node that are alive, else of those that have ended.
    """
    found = [_phases(*one) for one in starts]
    for phase in dict.fromkeys(phase for phases in found for phase in phases):
        if all(phase in phases for phases in found):
            longest = max(phases[phase] for phases in found)
            yield metrics.JOB_STARTUP.sample(longest, job_id=job_id, phase=phase)
    began = [_began(start, around) for _, start, around in starts]
    known = [at for at in began if at is not None]
    if known:
        yield metrics.JOB_PROCESSES_STARTED.sample(max(known), job_id=job_id)


def _began(start: RankStart, around: Surroundings) -> float | None:
    """Return the Unix time at which a process started; None if implausible."""
    earliest = (around.pod_created or 0.0) - SLACK_SECONDS
    latest = start.created_unix_ns / NS + SLACK_SECONDS
    known = start.began is not None and earliest <= start.began <= latest
    return start.began if known else None


def _phases(identity: RankIdentity, start: RankStart, around: Surroundings) -> Mapping[str, float]:
    """Return the seconds of the phases that are over, by name, in order."""
    began, phases = _began(start, around), dict[str, float]()
    joining, joined = _seconds(start.joining), _seconds(start.joined)
    alone = identity.world_size in {None, 1} and joining is None
    container = around.container_started if identity.attempt == 0 else None
    for phase, since, until in (
        ("launch", container, began),
        ("process", began, joining),
        (RENDEZVOUS, joining, joined),
        ("first_step", began if alone else joined, _seconds(start.first_step)),
    ):
        if since is not None and until is not None:
            phases[phase] = max(0.0, until - since)
    return phases


def _seconds(unix_ns: int | None) -> float | None:
    return None if unix_ns is None else unix_ns / NS
