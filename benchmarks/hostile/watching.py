"""What Prometheus, a kubelet and an engineer see of agents and of a watch, continuously."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from benchmarks.hostile.nodes import SHOWN, TEAM, Node

PATIENCE_SECONDS = 30.0
PROBE_SECONDS, SCRAPE_SECONDS, LOOK_SECONDS = 0.25, 1.0, 1.0
MOVING = re.compile(r"_starved_|_recent_|_busiest_|_bucket\{")
"""Series that depend on the machine's load, or of which new ones appear with time."""

RANK = re.compile(rf'job_id="{TEAM}/[^}}]*[{{,]rank="(\d+)"')

LAST_EVALUATION = re.compile(r"(?m)^rankscope_watch_last_evaluation_timestamp_seconds{.*} (\S+)$")

LAST_SEEN = re.compile(
    rf'(?m)^rankscope_finding_seen_timestamp_seconds{{job_id="{TEAM}/llm",kind="gpu_compute"}}'
    r" (\S+)$"
)

CULPRIT = re.compile(
    rf'(?m)^rankscope_finding_culprit_info{{[^}}]*job_id="{TEAM}/[^}}]*kind="gpu_compute"[^}}]*}}'
)

SUCCESS = re.compile(r'(?m)^rankscope_collector_success\{collector="(\w+)"\} 1')

LATE_SECONDS = 60.0
"""Seconds of age above which an evaluation, and what it saw of the slow rank, is late: agents that
hang cost one of 20 s once and 6 s at the looks that follow; `RankscopeWatchLagging` fires at 300
s."""


@dataclass(slots=True)
class Seen:
    """What was counted during the attacks.

    Args:
        probes, failed_probes: requests of kubelets, and those not answered with 200.
        scrapes, failed_scrapes: the same of Prometheus.
        settled: the team's jobs of which all is known, so that none of their series may change.
        lost: series of these that were on an earlier page and later missing.
        unexplained: those of them that were missing on a page on which no collector failed.
        fallen: their counters that fell.
        made_up: series of ranks that they do not have.
        late_job_seconds: how long the job that started during the attacks took to be seen in full.
        looks: requests to the watch.
        missed: those without the right verdict on the slow rank.
        accused: other ranks of the team's jobs that are reported to compute slowly.
        late: those with an evaluation older than `LATE_SECONDS`, or a verdict from an older one.
        evaluations: how many the watch made.
        oldest_seconds, oldest_verdict_seconds: the greatest age of an evaluation, and of the one
            that the verdict is from.
    """

    probes: int = 0
    failed_probes: int = 0
    scrapes: int = 0
    failed_scrapes: int = 0
    settled: frozenset[str] = frozenset()
    lost: set[str] = field(default_factory=set)
    unexplained: set[str] = field(default_factory=set)
    fallen: set[str] = field(default_factory=set)
    made_up: set[str] = field(default_factory=set)
    late_job_seconds: float = 0.0
    looks: int = 0
    missed: int = 0
    accused: set[str] = field(default_factory=set)
    late: int = 0
    evaluations: set[str] = field(default_factory=set)
    oldest_seconds: float = 0.0
    oldest_verdict_seconds: float = 0.0


def page_of(url: str, credentials: str = "") -> str:
    """Return a page of metrics.

    Raises:
        OSError: there is none.
    """
    headers = {"Authorization": credentials} if credentials else {}
    request = urllib.request.Request(f"{url}/metrics", headers=headers)  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
        return str(answer.read().decode())


def of_jobs(jobs: Iterable[str]) -> re.Pattern[str]:
    """Match the series of some of the team's jobs and of their pods."""
    names = "|".join(sorted(jobs)) or "none"
    return re.compile(rf'(?:job_id="{TEAM}/(?:{names})"|pod_name="(?:{names})-)')


def series_of(page: str, jobs: Iterable[str]) -> dict[str, float]:
    """Return the series of some of the team's jobs with their values."""
    found, wanted = {}, of_jobs(jobs)
    for line in page.splitlines():
        if wanted.search(line) and not MOVING.search(line) and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


def made_up(page: str, ranks: int) -> Iterator[str]:
    """Yield series of ranks that the team's jobs do not have."""
    for line in page.splitlines():
        rank = RANK.search(line)
        if rank is not None and int(rank[1]) >= ranks:
            yield line.rpartition(" ")[0]


def await_true(ask: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something holds.

    Raises:
        RuntimeError: it does not.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ask():
                return
        time.sleep(0.25)
    raise RuntimeError(f"{what}: not within {seconds:g} s")


@contextlib.contextmanager
def again_and_again(pause: float, act: Callable[[], None]) -> Iterator[None]:
    """Do something at regular intervals in a thread, until the block ends."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(pause):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def probe(one: Node, seen: Seen) -> None:
    """Request liveness like a kubelet."""
    seen.probes += 1
    try:
        seen.failed_probes += one.agent.liveness() != 200
    except (OSError, http.client.HTTPException):
        seen.failed_probes += 1


class Scraper:
    """Scrapes an agent and compares the settled jobs' series with those of the previous scrape.

    Args:
        one: the node.
        ranks: how many each job of the team has.
        seen: where it counts.
    """

    def __init__(self, one: Node, ranks: int, seen: Seen) -> None:
        self._node, self._ranks, self._seen = one, ranks, seen
        page = page_of(one.agent.url, SHOWN)
        self._series = series_of(page, seen.settled)
        self._succeeding = set(SUCCESS.findall(page))

    def __call__(self) -> None:
        """Scrape once."""
        settled = self._seen.settled
        self._seen.scrapes += 1
        try:
            page = page_of(self._node.agent.url, SHOWN)
        except (OSError, http.client.HTTPException):
            self._seen.failed_scrapes += 1
            return
        # A job may have become settled, or ended, while the page was on its way.
        settled &= self._seen.settled
        wanted = of_jobs(settled)
        before = {series: value for series, value in self._series.items() if wanted.search(series)}
        now, name = series_of(page, settled), self._node.folder.name
        lost = {f"{name}: {series}" for series in before.keys() - now.keys()}
        self._seen.lost.update(lost)
        succeeded = set(SUCCESS.findall(page))
        if self._succeeding <= succeeded:
            self._seen.unexplained.update(lost)
        self._succeeding |= succeeded
        for series in before.keys() & now.keys():
            if "_total" in series and now[series] < before[series]:
                self._seen.fallen.add(f"{name}: {series}")
        self._seen.made_up.update(f"{name}: {series}" for series in made_up(page, self._ranks))
        self._series = {**before, **now}


class Engineer:
    """Queries the watch for its verdict.

    Args:
        url: of the watch.
        verdict: what its page must hold.
        seen: where it counts.
    """

    def __init__(self, url: str, verdict: re.Pattern[str], seen: Seen) -> None:
        self._url, self._verdict, self._seen = url, verdict, seen

    def knows(self) -> bool:
        """Return True if the watch has the right verdict now."""
        return self._verdict.search(page_of(self._url)) is not None

    def __call__(self) -> None:
        """Look once."""
        self._seen.looks += 1
        try:
            page = page_of(self._url)
        except (OSError, http.client.HTTPException):
            self._seen.missed += 1
            return
        self._seen.missed += self._verdict.search(page) is None
        self._seen.accused.update(
            culprit[0] for culprit in CULPRIT.finditer(page) if not self._verdict.match(culprit[0])
        )
        self._note_age(page)

    def _note_age(self, page: str) -> None:
        """Record the age of the newest evaluation, and of the one that saw the slow rank."""
        seen, last, verdict = self._seen, LAST_EVALUATION.search(page), LAST_SEEN.search(page)
        if last is None:
            seen.late += 1
            return
        seen.evaluations.add(last[1])
        age = time.time() - float(last[1])
        seen.oldest_seconds = max(seen.oldest_seconds, age)
        if verdict is not None:
            age = time.time() - float(verdict[1])
            seen.oldest_verdict_seconds = max(seen.oldest_verdict_seconds, age)
        seen.late += age > LATE_SECONDS
