"""Saves the evidence of stalled jobs on this node unasked, before anybody ends them.

This happens once per stall, and at most once an hour per job: a query takes less than a millisecond
of a rank's interpreter, and a healthy rank is not queried at all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from rankscope_agent.sources.evidence.node_evidence import PARTS, NodeEvidence
from rankscope_agent.sources.evidence.saved_evidence import SavedEvidence, evidence_name
from rankscope_agent.sources.evidence.stalled_jobs import StalledJob, StalledJobs

log = logging.getLogger(__name__)

FORMAT_VERSION = 1
LOOK_SECONDS = 10.0
PAUSE_SECONDS = 3600.0
"""Minimum time between two saves of one job."""

APART_SECONDS = 5.0
"""Time between two pages, and between two reports of RAS: counts that change show that something is
still going on."""

MAX_JOBS = 256


class HangRecorder:
    """Looks for stalled jobs and saves what is known about them.

    Args:
        node: name of this node.
        standing: finds stalled jobs.
        evidence: what the node knows about a job.
        page: returns the agent's page as Prometheus reads it.
        kept: where evidence is saved.
        clock: returns the Unix time in seconds.
        apart: seconds between the first and the second look.
    """

    def __init__(
        self,
        node: str,
        standing: StalledJobs,
        evidence: NodeEvidence,
        page: Callable[[], str],
        kept: SavedEvidence,
        clock: Callable[[], float] = time.time,
        apart: float = APART_SECONDS,
    ) -> None:
        self._node = node
        self._standing = standing
        self._evidence = evidence
        self._page = page
        self._kept = kept
        self._clock = clock
        self._apart = apart
        self._ended = threading.Event()
        self._taken: dict[str, StalledJob] = {}
        self._at: dict[str, float] = {}
        self._recalled = False

    def look(self) -> None:
        """Save the evidence of the jobs for which it is due."""
        now = self._clock()
        for one in self._standing.at(now):
            self._recall()
            if self._is_due(one, now):
                self._note(one, now)
                self._take(one)

    def _recall(self) -> None:
        """Take over once what an earlier agent saved, so that a restart does not save it again."""
        if self._recalled:
            return
        for name in self._kept.names():
            found = self._kept.get(name) or {}
            with suppress(KeyError, TypeError, ValueError):
                since, at = float(found["since_unix_seconds"]), float(found["taken_unix_seconds"])
                one = StalledJob(str(found["job_id"]), since)
                self._taken[one.job_id], self._at[one.job_id] = one, at
        self._recalled = True

    def _is_due(self, one: StalledJob, now: float) -> bool:
        known = self._taken.get(one.job_id)
        if known is not None and known.since_unix_seconds == one.since_unix_seconds:
            return False
        return not 0 <= now - self._at.get(one.job_id, float("-inf")) < PAUSE_SECONDS

    def _note(self, one: StalledJob, now: float) -> None:
        if len(self._taken) >= MAX_JOBS:
            oldest = min(self._at, key=lambda job: self._at[job])
            del self._taken[oldest], self._at[oldest]
        self._taken[one.job_id], self._at[one.job_id] = one, now

    def _take(self, one: StalledJob) -> None:
        now = self._clock()
        name = evidence_name(one.job_id, now)
        taken: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "id": name,
            "job_id": one.job_id,
            "node": self._node,
            "since_unix_seconds": one.since_unix_seconds,
            "taken_unix_seconds": now,
        }
        pages = []
        for part in PARTS:
            taken[part] = self._isolated(part, partial(self._evidence.part, part, one.job_id))
            if part == "processes":
                pages.append({"taken_unix_seconds": self._clock(), "text": self._page()})
                self._ended.wait(self._apart)
        pages.append({"taken_unix_seconds": self._clock(), "text": self._page()})
        taken["pages"] = pages
        again = partial(self._evidence.part, "ras", one.job_id)
        steps = partial(self._evidence.steps, one.job_id, one.since_unix_seconds)
        taken["ras_again"] = self._isolated("ras", again)
        taken["steps"] = self._isolated("steps", steps)
        if self._kept.put(name, taken):
            log.warning("job %s makes no steps: saved its evidence as %s", one.job_id, name)

    def _isolated(self, name: str, look: Callable[[], Any]) -> Any:
        """Return one part, or why there is none: a failure must not affect the other parts."""
        try:
            return look()
        except Exception as error:
            log.exception("cannot read evidence of %s", name)
            return {"not_read": f"{type(error).__name__}: {str(error)[:100]}"}

    def run(self) -> None:
        """Look repeatedly until `stop`."""
        while not self._ended.wait(LOOK_SECONDS):
            self._look_safely()

    def _look_safely(self) -> None:
        try:
            self.look()
        except Exception:  # the next look may succeed, and the agent works without this one
            log.exception("looking for stalled jobs failed")

    def stop(self) -> None:
        """Make `run` return."""
        self._ended.set()
