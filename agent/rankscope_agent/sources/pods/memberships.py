"""The memberships of the node's pods in their jobs, each read once per version of its pod.

Whoever creates a pod chooses what its labels and variables say. If reading them fails, that costs
this pod its membership, and no other pod anything.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from dataclasses import dataclass

from rankscope_agent.sources.pods.launchers import membership
from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.records import MAX_PROBLEM, Pod

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a pod; `problem` is why its membership could not be, else empty."""

    pod: Pod
    member: Membership | None
    problem: str = ""


class Memberships:
    """The memberships of known pods; not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, _Read] = {}

    def take(self, pod: Pod) -> Membership | None:
        """Read and keep the membership of a pod that is new or has changed; None if it has none."""
        self._known[pod.uid] = read = _read(pod)
        return read.member

    def of(self, pod: Pod) -> Membership | None:
        """Return the membership of any version of a pod."""
        known = self._known.get(pod.uid)
        return known.member if known and known.pod is pod else _read(pod).member

    def problem(self, pod: Pod) -> str:
        """Return why the membership of a known pod cannot be read; empty if it can."""
        known = self._known.get(pod.uid)
        return known.problem if known else ""

    def keep(self, uids: Container[str]) -> None:
        """Forget all pods but these."""
        self._known = {uid: read for uid, read in self._known.items() if uid in uids}

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._known.pop(uid, None)


def _read(pod: Pod) -> _Read:
    if pod.problem:
        return _Read(pod, None, pod.problem)
    try:
        return _Read(pod, membership(pod))
    except Exception as error:  # what one pod says must not cost others their jobs
        log.debug("pods: job of pod %s/%s", pod.namespace, pod.name, exc_info=True)
        return _Read(pod, None, f"{error!a}"[:MAX_PROBLEM])
