"""Names of pods from the kubelet's log directories, without the API server.

/var/log/pods/<namespace>_<name>_<uid> exists from before a pod's first container until the pod is
gone (kubelet pkg/kubelet/kuberuntime/helpers.go BuildPodLogsDirectory). No pod can create one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rankscope_agent.contract.fair_shares import Holder

MAX_FOLDERS = 4096
"""Directories that are read: many times what the largest nodes run."""

AGAIN_SECONDS = 5.0
"""Time between two scans: the same as for pods' rings."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Namespace, name and UID of a pod; all empty for what is outside of pods."""

    namespace: str
    name: str
    uid: str = ""

    @property
    def holder(self) -> Holder:
        """The group and pod in whose share its files count."""
        return self.namespace, self.uid


def pod_of(folder: str) -> PodIdentity | None:
    """Return the pod whose log directory has this name; None if it is not such a name."""
    parts = folder.split("_")
    return PodIdentity(*parts) if len(parts) == 3 else None


class LogDirectories:
    """Pods by UID; may be queried by any thread.

    Args:
        root: the kubelet's directory of logs.
        clock: returns monotonic seconds.
    """

    def __init__(self, root: Path, clock: Callable[[], float]) -> None:
        self._root = root
        self._clock = clock
        self._lock = threading.Lock()
        self._names: Mapping[str, PodIdentity] = {}
        self._looked = float("-inf")

    def find(self, uid: str) -> PodIdentity | None:
        """Return the identity of a pod; None if it has no directory, or none is visible."""
        with self._lock:
            if uid not in self._names and self._clock() - self._looked >= AGAIN_SECONDS:
                self._looked = self._clock()
                self._names = _look(self._root)
            return self._names.get(uid)


def _look(root: Path) -> Mapping[str, PodIdentity]:
    try:
        with os.scandir(root) as entries:
            pods = [pod_of(entry.name) for entry in islice(entries, MAX_FOLDERS)]
    except OSError:
        return {}
    return {pod.uid: pod for pod in pods if pod is not None}
