"""The cgroups of training pods, located once and read repeatedly (cgroup version 2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.sources.kernel_files import names_in, read_text
from rankscope_agent.sources.pods.directory import PodDirectory

MAX_PODS = 64
"""Training pods followed: a node has one per GPU at most, and some that have ended."""

MAX_ENTRIES = 4096  # entries read in one directory

MAX_DEPTH = 5
"""Directories from the root to a pod: kubelet.slice, kubelet-kubepods.slice, its class, the pod."""

_POD = re.compile(
    r".*pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
)
_ON_THE_WAY = re.compile(r"kube.*|burstable|besteffort|guaranteed|user\.slice|docker.*")


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A pod's cgroup."""

    uid: str
    path: Path

    def text(self, name: str) -> str:
        """Return a file of the cgroup; empty if it cannot be read."""
        return read_text(self.path / name, 1 << 16)

    def process(self) -> int | None:
        """Return a process of its largest container; None if processes are not visible.

        The pod's own sandbox has one process with its own limits; it is not the trainer. In a PID
        namespace other than the node's, all PIDs are 0.
        """
        best: list[str] = []
        for container in self._containers():
            processes = read_text(container / "cgroup.procs", 1 << 16).split()
            best = max(best, processes, key=len)
        number = best[0] if best else ""
        return int(number) if number.isdigit() and int(number) > 0 else None

    def _containers(self) -> Iterator[Path]:
        names, _ = names_in(self.path, MAX_ENTRIES)
        for name in names:
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                yield path


def has_only_version_1(root: Path) -> bool:
    """Return whether a root has the controllers of cgroup version 1, each in a directory.

    Version 2 in `unified`, which systemd mounts beside them, has none.
    """
    names = set(names_in(root, MAX_ENTRIES)[0])
    return "cgroup.controllers" not in names and bool(names & {"cpu", "memory", "pids"})


def training_volumes(kubelet: Path) -> Iterator[str]:
    """Yield the uids of pods with a volume for the probe's rings."""
    names, _ = names_in(kubelet / "pods", MAX_ENTRIES)
    for name in names:
        if (kubelet / "pods" / name / "volumes" / "kubernetes.io~empty-dir" / "rankscope").is_dir():
            yield name


def members_of_jobs(directory: PodDirectory) -> Iterator[str]:
    """Yield the uids of this node's running pods that belong to jobs."""
    for pod in directory.pods():
        if not pod.ended and directory.member(pod) is not None:
            yield pod.uid


class PodGroups:
    """Locates the cgroups of pods below a root.

    Args:
        root: where cgroup version 2 is mounted.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found: Mapping[str, PodGroup] = {}

    def find(self, uids: Iterable[str]) -> tuple[PodGroup, ...]:
        """Return the groups of these pods, as far as they exist."""
        wanted = sorted(set(uids))[:MAX_PODS]
        known = {uid: group for uid, group in self._found.items() if group.path.is_dir()}
        if any(uid not in known for uid in wanted):
            known |= {uid: PodGroup(uid, path) for uid, path in _walk(self._root, MAX_DEPTH)}
        self._found = {uid: known[uid] for uid in wanted if uid in known}
        return tuple(self._found.values())


def _walk(folder: Path, depth: int) -> Iterator[tuple[str, Path]]:
    names, _ = names_in(folder, MAX_ENTRIES)
    for name in names:
        path = folder / name
        match = _POD.fullmatch(name)
        if match:
            yield match[1].replace("_", "-"), path
        elif depth > 0 and _ON_THE_WAY.fullmatch(name) and not path.is_symlink():
            yield from _walk(path, depth - 1)
