"""Pods whose processes were killed for lack of memory, remembered after the pods are gone.

Both a pod's cgroup and the kernel's log may count a kill: the first only with cgroup version 2 and
as long as the pod exists, the second only if the log is read. Nothing is counted twice.
Kills outside of pods count where ranks run there, but as no job's: a process may be any program's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rankscope_agent.collecting.summary.readings import Readings
from rankscope_agent.collecting.summary.windows import RESOLUTION_SECONDS, Increases
from rankscope_agent.contract.metrics import host, kernel_log, training
from rankscope_agent.contract.metrics import summary as metrics
from rankscope_agent.contract.model import Sample

KILL_SECONDS = 3600.0

BY_CGROUP = ""
"""Stands for the pod's own count, in place of a scope of the kernel's log."""


class OomKills:
    """Counts kills of the last hour by pod, and remembers whose the pod was."""

    def __init__(self) -> None:
        self._kills: Increases[tuple[str, str]] = Increases(KILL_SECONDS)
        self._jobs: dict[str, str] = {}
        self._has_kernel_log = False

    def samples(self, readings: Readings, now: float) -> Iterator[Sample]:
        """Process the current counts of pods, and yield the pods that were hit, also gone ones."""
        running = {
            labels["pod_uid"]: labels["job_id"] if labels["pod_uid"] else ""
            for labels, _ in readings.described(training.RANK_INFO)
        }
        for (pod_uid,), kills in readings.of(host.POD_OOM_KILLS):
            self._kills.add((pod_uid, BY_CGROUP), kills, now)
        self._add_log(readings, now, running.keys() | self._jobs.keys())
        self._kills.forget(now)
        counters = self._kills.keys()
        known = dict.fromkeys(pod_uid for pod_uid, _ in counters)
        self._jobs = {uid: job for uid, job in self._jobs.items() if uid in known} | running
        for pod_uid in known:
            kills = self._kills_of(pod_uid, now)
            if kills:
                job_id = self._jobs.get(pod_uid, "")
                yield metrics.POD_RECENT_OOM_KILLS.sample(kills, job_id=job_id, pod_uid=pod_uid)

    def _add_log(self, readings: Readings, now: float, ranks: Collection[str]) -> None:
        """Process the kernel log's counts of pods with ranks; before its first kill a pod has none.

        For other pods the host collector counts the kills of those that belong to jobs.
        """
        known = frozenset(self._kills.keys())
        for (scope, pod_uid), kills in readings.of(kernel_log.KERNEL_OOM_KILLS):
            if pod_uid not in ranks:
                continue
            if self._has_kernel_log and (pod_uid, scope) not in known:
                self._kills.add((pod_uid, scope), 0.0, now - RESOLUTION_SECONDS)
            self._kills.add((pod_uid, scope), kills, now)
        self._has_kernel_log = bool(readings.values(kernel_log.KERNEL_LOG_INFO))

    def _kills_of(self, pod_uid: str, now: float) -> float:
        """Return the kills of the last hour from the source that counted more of them."""
        by_log = sum(self._kills.increase((pod_uid, scope), now) for scope in ("cgroup", "node"))
        return max(self._kills.increase((pod_uid, BY_CGROUP), now), by_log)
