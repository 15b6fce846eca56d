"""Pods of which processes were killed for want of memory, remembered longer than they live."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.collecting.summary.readings import Readings
from rankscope_agent.collecting.summary.windows import Rises
from rankscope_agent.contract.metrics import host, training
from rankscope_agent.contract.metrics import summary as metrics
from rankscope_agent.contract.model import Sample

KILL_SECONDS = 3600.0


class MemoryKills:
    """Counts kills of the last hour by pod, and keeps whose the pod was."""

    def __init__(self) -> None:
        self._kills: Rises[str] = Rises(KILL_SECONDS)
        self._jobs: dict[str, str] = {}

    def samples(self, readings: Readings, now: float) -> Iterator[Sample]:
        """Take what pods count now, and yield those that were hit, gone ones included."""
        running = {
            labels["pod_uid"]: labels["job_id"]
            for labels, _ in readings.described(training.RANK_INFO)
        }
        for (pod_uid,), kills in readings.of(host.POD_OOM_KILLS):
            self._kills.add(pod_uid, kills, now)
        self._kills.forget(now)
        known = self._kills.keys()
        self._jobs = {uid: job for uid, job in self._jobs.items() if uid in known} | running
        for pod_uid in known:
            kills = self._kills.rise(pod_uid, now)
            if kills:
                job_id = self._jobs.get(pod_uid, "")
                yield metrics.POD_RECENT_OOM_KILLS.sample(kills, job_id=job_id, pod_uid=pod_uid)
