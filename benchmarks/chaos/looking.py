"""Queries the chain: pages all the time, everything else once a fault is healed."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.chaos.chain import Chain
from benchmarks.chaos.invariants import Records
from benchmarks.chaos.jobs import LONG, LONG_SLOW, Job
from benchmarks.chaos.server import Server, get

PAUSE_SECONDS = 0.5
COLLECTED = "\nrankscope_collector_success{"
CULPRIT = re.compile(
    rf'(?m)^rankscope_finding_culprit_info{{[^}}]*job_id="{LONG}"[^}}]*rank="(\d*)"'
    rf'[^}}]*symptom="gpu_compute"'
)


@dataclass(slots=True)
class Pages:
    """Counts of requests to the agent.

    Args:
        served: pages that arrived.
        empty: those without any collector.
        unanswered: requests without a response although nothing kept the agent from it.
    """

    served: int = 0
    empty: int = 0
    unanswered: int = 0

    def ask(self, agent: Server) -> None:
        """Request a page once."""
        excuses = agent.excuses
        try:
            page = get(f"{agent.url}/metrics")
        except (OSError, http.client.HTTPException):
            self.unanswered += excuses == agent.excuses and not excuses % 2
            return
        self.served += 1
        self.empty += COLLECTED not in page


@contextlib.contextmanager
def asked(agent: Server) -> Iterator[Pages]:
    """Request the agent's page repeatedly until the block ends."""
    pages, ended = Pages(), threading.Event()

    def run() -> None:
        while not ended.wait(PAUSE_SECONDS):
            pages.ask(agent)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield pages
    finally:
        ended.set()
        thread.join()


def records(chain: Chain, job: Job) -> Mapping[int, Records]:
    """Return what the rings and the agent's page show of a job's records.

    Raises:
        OSError: the agent does not answer.
    """
    page = get(f"{chain.agent.url}/metrics")
    written = job.written()
    return {
        rank: Records(
            newest,
            _value(page, "rankscope_steps_total", job.name, rank),
            _value(page, "rankscope_training_records_lost_total", job.name, rank),
        )
        for rank, newest in written.items()
    }


def _value(page: str, name: str, job: str, rank: int) -> int:
    found = re.search(rf'(?m)^{name}{{job_id="{job}",rank="{rank}"}} (\S+)$', page)
    return int(float(found[1])) if found else 0


def culprits(chain: Chain) -> set[int]:
    """Return the ranks of the long job that the watch calls slow.

    Raises:
        OSError: the watch does not answer.
    """
    page = get(f"{chain.watch.url}/metrics")
    return {int(rank) if rank else -1 for rank in CULPRIT.findall(page)}


def knows(chain: Chain) -> bool:
    """Return True if the watch names the slow rank.

    Raises:
        OSError: it does not answer.
    """
    return LONG_SLOW in culprits(chain)
