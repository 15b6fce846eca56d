"""What Prometheus, a kubelet and an engineer see of agents and of a watch, asked every moment."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.hostile.nodes import SHOWN, TEAM, Node

PATIENCE_SECONDS = 30.0
PROBE_SECONDS, SCRAPE_SECONDS, LOOK_SECONDS = 0.25, 1.0, 1.0
OF_THE_TEAM = re.compile(rf'(?:job_id="{TEAM}/|pod_name="{TEAM}-|pod_namespace="{TEAM}")')
MOVING = re.compile(r"_starved_|_recent_|_bucket\{")
"""Series that come with what the machine does, or of which new ones come with time."""

LAST_EVALUATION = re.compile(r"(?m)^rankscope_watch_last_evaluation_timestamp_seconds (\S+)$")

LATE_SECONDS = 60.0
"""Age of an evaluation that counts as late: two agents that hang cost one of 20 s once, 1.5 s at
the looks that follow; `RankscopeWatchLagging` fires at 300 s."""


@dataclass(slots=True)
class Seen:
    """What was counted during the attacks.

    Args:
        probes, failed_probes: questions of kubelets, and those not answered with 200.
        scrapes, failed_scrapes: the same of Prometheus.
        lost: series of the team that were on a page before and were missing later.
        fallen: its counters that fell.
        looks: questions to the watch.
        missed: those without the right verdict on the slow rank.
        late: those with an evaluation older than `LATE_SECONDS`.
        evaluations: how many the watch made.
    """

    probes: int = 0
    failed_probes: int = 0
    scrapes: int = 0
    failed_scrapes: int = 0
    lost: set[str] = field(default_factory=set)
    fallen: set[str] = field(default_factory=set)
    looks: int = 0
    missed: int = 0
    late: int = 0
    evaluations: set[str] = field(default_factory=set)
    oldest_seconds: float = 0.0


def page_of(url: str, credentials: str = "") -> str:
    """Return a page of metrics.

    Raises:
        OSError: there is none.
    """
    headers = {"Authorization": credentials} if credentials else {}
    request = urllib.request.Request(f"{url}/metrics", headers=headers)  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
        return str(answer.read().decode())


def team_series(page: str) -> dict[str, float]:
    """Return the team's series with their values."""
    found = {}
    for line in page.splitlines():
        if OF_THE_TEAM.search(line) and not MOVING.search(line) and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


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
    """Do something at regular intervals on a thread, until the block ends."""
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
    """Ask for liveness as a kubelet does."""
    seen.probes += 1
    try:
        seen.failed_probes += one.agent.liveness() != 200
    except (OSError, http.client.HTTPException):
        seen.failed_probes += 1


class Scraper:
    """Scrapes an agent and compares the team's series with those of the scrape before.

    Args:
        one: the node.
        seen: where it counts.
    """

    def __init__(self, one: Node, seen: Seen) -> None:
        self._node, self._seen = one, seen
        self.series = team_series(page_of(one.agent.url, SHOWN))

    def __call__(self) -> None:
        """Scrape once."""
        self._seen.scrapes += 1
        try:
            now = team_series(page_of(self._node.agent.url, SHOWN))
        except (OSError, http.client.HTTPException):
            self._seen.failed_scrapes += 1
            return
        name = self._node.folder.name
        self._seen.lost.update(f"{name}: {series}" for series in self.series.keys() - now.keys())
        for series in self.series.keys() & now.keys():
            if "_total" in series and now[series] < self.series[series]:
                self._seen.fallen.add(f"{name}: {series}")
        self.series.update(now)


class Engineer:
    """Asks the watch for its verdict.

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
        last = LAST_EVALUATION.search(page)
        if last is None:
            self._seen.late += 1
            return
        self._seen.evaluations.add(last[1])
        age = time.time() - float(last[1])
        self._seen.oldest_seconds = max(self._seen.oldest_seconds, age)
        self._seen.late += age > LATE_SECONDS
